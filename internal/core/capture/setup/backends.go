package setup

import (
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/iptables"
	"outrider.dev/internal/core/capture/nftables"
)

// Backends returns the backends for the choice "auto", "nftables" or "iptables". A backend that is
// not chosen is also in the result, so that its rules are found and removed, but it does not write.
// variant is the variant of iptables: "legacy", "nft", or "" for either.
func Backends(choice, variant string) ([]Backend, error) {
	nft, err := nftables.Open()
	if err != nil {
		return nil, err
	}
	ipt := &iptables.Backend{Variant: variant}
	switch choice {
	case capture.NFTables:
		return []Backend{nft, notChosen{ipt}}, nil
	case capture.IPTables:
		return []Backend{ipt, notChosen{nft}}, nil
	}
	return []Backend{nft, ipt}, nil
}

// A notChosen backend finds its rules, removes them, and restores them after a failure. It is never
// used to write new rules.
type notChosen struct{ Backend }

// chosenOrNot converts b, or the backend inside b if b is notChosen, to the type T. It returns
// false if the backend is not a T.
func chosenOrNot[T any](b Backend) (T, bool) {
	if n, ok := b.(notChosen); ok {
		b = n.Backend
	}
	t, ok := b.(T)
	return t, ok
}
