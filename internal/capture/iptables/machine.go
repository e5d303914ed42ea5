package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"outrider.dev/internal/capture"
)

// A site is one variant of iptables on this machine, and what is ours there.
type site struct {
	variant   variant
	four, six owned
	err       error // why it cannot be used
	sixErr    error // why IPv6 cannot be used
}

// A machine is both variants.
type machine map[variant]*site

// hasSix is a file that only a kernel with IPv6 has.
const hasSix = "/proc/thread-self/net/if_inet6"

// look finds what is ours. A variant that is not installed, or that the kernel does
// not support, has no rules: its error is kept for an attempt to write there. A variant
// that cannot be read for want of a permission is an error, because it may have rules.
func look(ctx context.Context) (machine, error) {
	_, noSix := os.Stat(hasSix)
	m := machine{}
	for _, v := range variants {
		s := &site{variant: v}
		m[v] = s
		if s.four, s.err = save(ctx, v, capture.IPv4); s.err == nil {
			_, s.err = program(ctx, v, capture.IPv4, "restore")
		}
		s.sixErr = noSix
		if s.sixErr == nil {
			s.six, s.sixErr = save(ctx, v, capture.IPv6)
		}
		for _, err := range []error{s.err, s.sixErr} {
			if ctx.Err() != nil || err != nil && !absent(v, err) {
				return nil, fmt.Errorf("looking for rules of ours in iptables-%s: %w", v, err)
			}
		}
	}
	return m, nil
}

// absent reports whether err means that there can be no rules: no command for
// them, no such family, or no nf_tables in the kernel.
func absent(v variant, err error) bool {
	var c *commandError
	switch {
	case errors.Is(err, errNoTool), errors.Is(err, fs.ErrNotExist):
		return true
	case errors.As(err, &c):
		return v == nft && !forbidden(err)
	}
	return false
}

// choose is the variant to write with.
func (m machine) choose(name string) (variant, error) {
	if name != "" {
		s, ok := m[variant(name)]
		if !ok {
			return "", fmt.Errorf("there is no variant %q of iptables; use legacy or nft", name)
		}
		if s.err != nil {
			return "", unusable("iptables-"+name, s.err)
		}
		return s.variant, nil
	}
	var errs []error
	for _, v := range variants {
		if m[v].err == nil {
			return v, nil
		}
		errs = append(errs, m[v].err)
	}
	return "", unusable("iptables", errors.Join(errs...))
}

func unusable(name string, err error) error {
	if errors.Is(err, errNoTool) {
		err = fmt.Errorf("%w, or use the nftables backend, which needs no commands", err)
	}
	return fmt.Errorf("%s cannot be used: %w", name, err)
}

// filtersSix reports whether a variant can filter IPv6 here. A machine that has IPv6
// but lacks the command is an error: its traffic would go past the proxy.
func (m machine) filtersSix(ctx context.Context, v variant) (bool, error) {
	s := m[v]
	if errors.Is(s.sixErr, errNoTool) {
		return false, fmt.Errorf("IPv6 is to be captured: %w", s.sixErr)
	}
	if s.sixErr != nil || v == nft {
		return s.sixErr == nil, nil
	}
	if _, err := os.Stat(legacyNames[capture.IPv6]); err == nil {
		return true, nil
	}
	// The module is not loaded; the command loads it, if there is one.
	path, err := program(ctx, v, capture.IPv6, "save")
	if err != nil {
		return false, fmt.Errorf("IPv6 is to be captured: %w", err)
	}
	_, err = run(ctx, "", path, "-t", string(capture.Filter))
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
	for _, f := range []struct {
		family capture.Families
		now    *owned
	}{{capture.IPv4, &s.four}, {capture.IPv6, &s.six}} {
		if !f.now.empty() {
			steps = append(steps, step{s.variant, f.family, *f.now, f.now.with(dnsGuard)})
			*f.now = f.now.with(dnsGuard)
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
	return assemble(s.four, s.six, sets)
}

// removal is the steps to nothing.
func (m machine) removal() []step {
	var steps []step
	for _, v := range variants {
		steps = append(steps, m[v].steps(owned{}, owned{})...)
	}
	return steps
}
