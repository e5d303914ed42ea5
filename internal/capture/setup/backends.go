package setup

import (
	"context"
	"errors"

	"outrider.dev/internal/capture"
	"outrider.dev/internal/capture/iptables"
	"outrider.dev/internal/capture/nftables"
)

// Backends returns the backends for a choice of "auto", "nftables" or "iptables". The
// one that is not chosen is among them, so that its rules are found and removed, but it
// does not write. variant is that of iptables: "legacy", "nft", or "" for either.
func Backends(choice, variant string) ([]Backend, error) {
	nft, err := nftables.Open()
	if err != nil {
		return nil, err
	}
	ipt := onTraces{&iptables.Backend{Variant: variant}, nft}
	switch choice {
	case capture.NFTables:
		return []Backend{nft, readOnly{ipt}}, nil
	case capture.IPTables:
		return []Backend{ipt, readOnly{nft}}, nil
	}
	return []Backend{nft, ipt}, nil
}

// A readOnly backend finds and removes, and refuses to write.
type readOnly struct{ Backend }

var errNotChosen = errors.New("another backend is configured")

func (readOnly) Apply(context.Context, capture.Ruleset) error { return errNotChosen }

// onTraces starts the iptables programs only where the kernel shows that iptables
// has been used: they take longer than all the rest together.
type onTraces struct {
	*iptables.Backend
	nft *nftables.Backend
}

func (b onTraces) Read(ctx context.Context) (capture.State, error) {
	if used, err := b.nft.IptablesTraces(); err == nil && !used {
		return capture.State{}, capture.ErrNone
	}
	return b.Backend.Read(ctx)
}

func (b onTraces) Remove(ctx context.Context) error {
	if used, err := b.nft.IptablesTraces(); err == nil && !used {
		return nil
	}
	return b.Backend.Remove(ctx)
}
