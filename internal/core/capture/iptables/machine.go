//go:build linux

package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/ipset"
	"outrider.dev/internal/core/capture/nftables"
)

// A site contains our rules in one variant of iptables.
type site struct {
	variant   variant
	four, six owned
	err       error // the reason if the kernel does not support the variant
}

// A machine contains our rules in both variants of iptables.
type machine map[variant]*site

// hasSix is a file that exists only if the kernel has IPv6.
var hasSix = "/proc/thread-self/net/if_inet6"

// A place consists of the tables of one family in one variant of iptables. It may contain rules of ours.
type place struct {
	variant variant
	family  capture.Families
}

// installed returns an error unless the programs that read and write a place are installed.
func (p place) installed(ctx context.Context) error {
	for _, action := range []string{"save", "restore"} {
		if _, err := program(ctx, p.variant, p.family, action); err != nil {
			return err
		}
	}
	return nil
}

// look finds our rules. It first asks the kernel which places contain chains of ours, which starts
// no program and creates no table. Only for these places it starts the programs that read the
// rules, since they take longer than everything else together.
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

// read reads the rules of the places concurrently.
func (m machine) read(ctx context.Context, places []place) error {
	var waits []func() (owned, error)
	for _, p := range places {
		waits = append(waits, startSave(ctx, p.variant, p.family))
	}
	var errs []error
	for i, p := range places {
		o, err := waits[i]()
		if err != nil {
			errs = append(errs, fmt.Errorf("looking for Outrider's rules in iptables-%s: %w", p.variant, err))
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

// choose returns the variant to write with.
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

// usable returns an error if a variant cannot be used.
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

// filtersSix reports whether a variant can filter IPv6 here. If a machine has IPv6 but lacks the command, that is
// an error, because the IPv6 traffic would bypass the proxy.
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
	// The kernel module is not loaded. The command loads the module, if it exists.
	path, err := program(ctx, v, capture.IPv6, "save")
	if err == nil {
		_, err = run(ctx, "", path, "-t", string(capture.Filter))
	}
	if ctx.Err() != nil {
		return false, err
	}
	return err == nil, nil
}

// replace returns the steps that replace our rules by rs in one variant: first they write the new rules, and then
// they remove the rules of the other variant.
func (m machine) replace(v variant, rs capture.Ruleset, generation byte) ([]step, error) {
	four, err := express(rs, capture.IPv4, generation)
	if err != nil {
		return nil, err
	}
	six, err := express(rs, capture.IPv6, generation)
	if err != nil {
		return nil, err
	}
	// Rules in both variants together would refuse connections. So the other variant has a guard
	// until its rules are gone.
	var steps, removal []step
	for _, other := range variants {
		if other != v {
			steps = append(steps, m[other].guardSteps()...)
			removal = append(removal, m[other].steps(owned{}, owned{})...)
		}
	}
	return slices.Concat(steps, m[v].steps(four, six), removal), nil
}

// guardSteps returns the steps that put a guard before the existing rules.
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

// steps returns the steps that replace the existing rules by others. If both families change, a guard for IPv4 is
// in place before IPv6 changes, and until the new rules for IPv4 are written.
func (s *site) steps(four, six owned) []step {
	now := s.four
	var steps []step
	if transition(s.four, four) != "" && transition(s.six, six) != "" {
		now = s.four.with(max(s.four.needs(), four.needs()))
		steps = append(steps, step{s.variant, capture.IPv4, s.four, now})
	}
	return append(steps, step{s.variant, capture.IPv6, s.six, six}, step{s.variant, capture.IPv4, now, four})
}

// state returns the state of both families, or an error if their rules do not come from a single
// run.
func (s *site) state(sets map[string]ipset.Set) (capture.State, error) {
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

// removal returns the steps that remove all our rules.
func (m machine) removal() []step {
	var steps []step
	for _, v := range variants {
		steps = append(steps, m[v].steps(owned{}, owned{})...)
	}
	return steps
}
