//go:build linux

package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/nftables"
)

// A site is what is ours in one variant of iptables.
type site struct {
	variant   variant
	four, six owned
	err       error // why the kernel does not support the variant
}

// A machine is both variants.
type machine map[variant]*site

// hasSix is a file that only a kernel with IPv6 has.
var hasSix = "/proc/thread-self/net/if_inet6"

// A place is where rules of ours can be: a variant of iptables, and a family.
type place struct {
	variant variant
	family  capture.Families
}

// installed returns an error if the programs that read and write a place are not installed.
func (p place) installed(ctx context.Context) error {
	for _, action := range []string{"save", "restore"} {
		if _, err := program(ctx, p.variant, p.family, action); err != nil {
			return err
		}
	}
	return nil
}

// look finds what is ours. The kernel says in which places there are chains of ours, which
// takes no program and makes no table; only there the programs, which take longer than all
// the rest together, read the rules.
func look(ctx context.Context) (machine, error) {
	m := machine{}
	for _, v := range variants {
		m[v] = &site{variant: v, four: owned{}, six: owned{}}
	}
	places, err := legacyPlaces()
	if err != nil {
		return nil, err
	}
	here, err := nftPlaces()
	if nftables.Unsupported(err) {
		m[nft].err = err
	} else if err != nil {
		return nil, err
	}
	places = append(places, here...)
	for _, p := range places {
		if err := p.installed(ctx); err != nil {
			return nil, fmt.Errorf("rules of outrider are in iptables-%s (%s), and cannot be changed: %w", p.variant, p.family, err)
		}
	}
	return m, m.read(ctx, places)
}

// read reads all places at once.
func (m machine) read(ctx context.Context, places []place) error {
	var waits []func() (owned, error)
	for _, p := range places {
		waits = append(waits, startSave(ctx, p.variant, p.family))
	}
	var errs []error
	for i, p := range places {
		o, err := waits[i]()
		if err != nil {
			errs = append(errs, fmt.Errorf("looking for rules of ours in iptables-%s: %w", p.variant, err))
		}
		*m[p.variant].at(p.family) = o
	}
	return errors.Join(errs...)
}

func (s *site) at(family capture.Families) *owned {
	if family == capture.IPv6 {
		return &s.six
	}
	return &s.four
}

// choose is the variant to write with.
func (m machine) choose(ctx context.Context, name string) (variant, error) {
	if name != "" {
		v := variant(name)
		if m[v] == nil {
			return "", fmt.Errorf("there is no variant %q of iptables; use legacy or nft", name)
		}
		if err := m.usable(ctx, v); err != nil {
			return "", unusable("iptables-"+name, err)
		}
		return v, nil
	}
	var errs []error
	for _, v := range variants {
		err := m.usable(ctx, v)
		if err == nil {
			return v, nil
		}
		errs = append(errs, err)
	}
	return "", unusable("iptables", errors.Join(errs...))
}

// usable returns why a variant cannot be used.
func (m machine) usable(ctx context.Context, v variant) error {
	if m[v].err != nil {
		return m[v].err
	}
	return place{v, capture.IPv4}.installed(ctx)
}

func unusable(name string, err error) error {
	if errors.Is(err, errNoTool) {
		err = fmt.Errorf("%w, or use the nftables backend, which needs no commands", err)
	}
	return fmt.Errorf("%s cannot be used: %w", name, err)
}

// filtersSix reports whether a variant can filter IPv6 here. A machine that has IPv6
// but lacks the command is an error: its traffic would go past the proxy.
func filtersSix(ctx context.Context, v variant) (bool, error) {
	if _, err := os.Stat(hasSix); err != nil {
		return false, nil
	}
	if err := (place{v, capture.IPv6}).installed(ctx); err != nil {
		return false, fmt.Errorf("IPv6 is to be captured: %w", err)
	}
	if v == nft {
		return true, nil
	}
	if _, err := os.Stat(legacyNames[capture.IPv6]); err == nil {
		return true, nil
	}
	// The module is not loaded; the command loads it, if there is one.
	path, err := program(ctx, v, capture.IPv6, "save")
	if err == nil {
		_, err = run(ctx, "", path, "-t", string(capture.Filter))
	}
	if ctx.Err() != nil {
		return false, err
	}
	return err == nil, nil
}

// replace is the steps to rs in one variant: first the new rules are written, then those
// of the other variant removed.
func (m machine) replace(v variant, rs capture.Ruleset, generation byte) ([]step, error) {
	four, err := express(rs, capture.IPv4, generation)
	if err != nil {
		return nil, err
	}
	six, err := express(rs, capture.IPv6, generation)
	if err != nil {
		return nil, err
	}
	// The rules of two variants at once refuse connections. The guard of the other one
	// stands until its rules are gone.
	var steps, removal []step
	for _, other := range variants {
		if other != v {
			steps = append(steps, m[other].guardSteps()...)
			removal = append(removal, m[other].steps(owned{}, owned{})...)
		}
	}
	return slices.Concat(steps, m[v].steps(four, six), removal), nil
}

// guardSteps puts the rules that are there under a guard.
func (s *site) guardSteps() []step {
	var steps []step
	for _, family := range families {
		if now := s.at(family); !now.empty() {
			steps = append(steps, step{s.variant, family, *now, now.with(dnsGuard)})
			*now = now.with(dnsGuard)
		}
	}
	return steps
}

// steps are those from what is there to other rules. Where both families change, IPv4
// waits from before the first change of IPv6 until it has its own rules.
func (s *site) steps(four, six owned) []step {
	now := s.four
	var steps []step
	if transition(s.four, four) != "" && transition(s.six, six) != "" {
		now = s.four.with(max(s.four.needs(), four.needs()))
		steps = append(steps, step{s.variant, capture.IPv4, s.four, now})
	}
	return append(steps, step{s.variant, capture.IPv6, s.six, six}, step{s.variant, capture.IPv4, now, four})
}

// state is the rules of both families, or a reason why they are not those of one run.
func (s *site) state(sets map[string]kernelSet) (capture.State, error) {
	for _, o := range []owned{s.four, s.six} {
		if slices.Contains(o.at(capture.Filter).chains, guardChain) {
			return capture.State{}, errors.New("a capture was interrupted, and new connections wait until another one is run, or capture clean")
		}
	}
	for name := range sets { // any order: one error is enough
		if !s.four.hasSet(name+" ") && !s.six.hasSet(name+" ") {
			return capture.State{}, fmt.Errorf("no rule refers to set %s: a capture was interrupted, run it again, or capture clean", name)
		}
	}
	st, err := assemble(s.four, s.six, sets)
	st.Variant = string(s.variant)
	return st, err
}

// removal is the steps to nothing.
func (m machine) removal() []step {
	var steps []step
	for _, v := range variants {
		steps = append(steps, m[v].steps(owned{}, owned{})...)
	}
	return steps
}
