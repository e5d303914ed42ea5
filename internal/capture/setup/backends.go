package setup

import (
	"context"

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

// onTraces starts the iptables programs only where the kernel has chains of ours: they
// take longer than all the rest together. Whether there are chains does not depend on the
// programs, which may not be installed any more.
type onTraces struct {
	*iptables.Backend
	nft *nftables.Backend
}

func (b onTraces) Read(ctx context.Context) (capture.State, error) {
	if used, err := b.traces(ctx); err != nil {
		return capture.State{}, err
	} else if !used {
		return capture.State{}, capture.ErrNone
	}
	return b.Backend.Read(ctx)
}

func (b onTraces) Remove(ctx context.Context) error {
	if used, err := b.traces(ctx); err != nil || !used {
		return err
	}
	return b.Backend.Remove(ctx)
}

// traces reports whether there are chains or sets of ours in iptables. It is an error if there are
// and the programs for them are missing.
func (b onTraces) traces(ctx context.Context) (bool, error) {
	places, err := iptables.Legacy()
	if err != nil {
		return false, err
	}
	for _, family := range []capture.Families{capture.IPv4, capture.IPv6} {
		has, err := b.nft.HasChains(family, iptables.Prefix)
		if err != nil && !nftables.Unsupported(err) {
			return false, err
		}
		if has {
			places = append(places, iptables.Place{Variant: "nft", Family: family})
		}
	}
	sets, err := iptables.HasSets()
	if err != nil {
		return false, err
	}
	for _, p := range places {
		if err := iptables.Installed(ctx, p); err != nil {
			return false, err
		}
	}
	return sets || len(places) > 0, nil
}
