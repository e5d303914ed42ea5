package setup

import (
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/iptables"
	"outrider.dev/internal/core/capture/nftables"
)

// Backends returns the backends for a choice of "auto", "nftables" or "iptables". The
// one that is not chosen is among them, so that its rules are found and removed, but it
// does not write. variant is that of iptables: "legacy", "nft", or "" for either.
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

// A notChosen backend finds its rules, removes them, and restores them after a failure. New
// rules are written by another one.
type notChosen struct{ Backend }

// chosenOrNot is b as a T, if it is one.
func chosenOrNot[T any](b Backend) (T, bool) {
	if n, ok := b.(notChosen); ok {
		b = n.Backend
	}
	t, ok := b.(T)
	return t, ok
}
