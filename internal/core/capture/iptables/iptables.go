//go:build linux

package iptables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/ipset"
)

// A Backend writes rule sets with the iptables commands, into the network namespace of the calling
// thread. Its zero value is ready to use.
type Backend struct {
	Variant string // variant to write with: "legacy", "nft", or "" for nft if the kernel supports it

	seen machine // last result of [Backend.look]; nil after a change
	// The results of the last Read, for Recount:
	found *site
	sets  map[string]ipset.Set
}

// look finds our rules. It returns its last result if nothing was written since. This is safe, since capture has
// locked the namespace.
func (b *Backend) look(ctx context.Context) (m machine, err error) {
	if b.seen != nil {
		return b.seen, nil
	}
	if m, err = look(ctx); err != nil {
		return nil, err
	}
	b.seen = m
	return m, nil
}

// Name returns "iptables".
func (b *Backend) Name() string { return capture.IPTables }

// Sets returns an error if sets of ipset cannot be used here.
func (b *Backend) Sets() error { return ipset.Usable() }

// Available returns the families that can be filtered here: IPv4, and IPv6 unless the machine lacks
// it or cannot filter it. [Backend.Apply] refuses other families.
func (b *Backend) Available(ctx context.Context) (capture.Families, error) {
	m, err := b.look(ctx)
	if err != nil {
		return 0, err
	}
	v, err := m.choose(ctx, b.Variant)
	if err != nil {
		return 0, err
	}
	six, err := filtersSix(ctx, v)
	if err != nil || !six {
		return capture.IPv4, err
	}
	return capture.DualStack, nil
}

// Apply writes rs and removes our other rules, in both variants. On an error, our rules do not change. If rs has
// no rules, all our rules are removed.
//
// The memory of parking survives Apply: the kernel keeps the lists of module recent by name, as
// long as rules use them.
func (b *Backend) Apply(ctx context.Context, rs capture.Ruleset) error {
	if len(rs.Chains) == 0 {
		return b.Remove(ctx)
	}
	m, err := b.look(ctx)
	if err != nil {
		return err
	}
	v, err := m.choose(ctx, b.Variant)
	if err != nil {
		return err
	}
	if rs.Families.Has(capture.IPv6) {
		six, err := filtersSix(ctx, v)
		if err != nil {
			return err
		}
		if !six {
			return errors.New("IPv6 cannot be filtered on this machine")
		}
	}
	generation, finish, err := ipset.Create(rs)
	if err != nil {
		return err
	}
	steps, err := m.replace(v, rs, generation)
	if err == nil {
		b.seen = nil
		err = perform(ctx, steps)
	}
	return errors.Join(err, finish(err == nil))
}

// Guard makes new connections wait until Apply or Remove is called. It places guards wherever rules of ours are,
// or, if there are none, where Apply would write them.
func (b *Backend) Guard(ctx context.Context) error {
	m, err := b.look(ctx)
	if err != nil {
		return err
	}
	b.seen = nil
	var steps []step
	for _, v := range variants {
		steps = append(steps, m[v].guardSteps()...)
	}
	if len(steps) == 0 {
		v, err := m.choose(ctx, b.Variant)
		if err != nil {
			return err
		}
		steps = append(steps, step{v, capture.IPv4, owned{}, owned{}.with(dnsGuard)})
		if six, err := filtersSix(ctx, v); err != nil {
			return err
		} else if six {
			steps = append(steps, step{v, capture.IPv6, owned{}, owned{}.with(dnsGuard)})
		}
	}
	return perform(ctx, steps)
}

// Read returns the rule set in the kernel, without its Routing, or [capture.ErrNone]. If our rules
// are incomplete or were changed into rules that we do not write, the error is a
// [capture.DamagedError] that names them.
func (b *Backend) Read(ctx context.Context) (capture.State, error) {
	b.seen = nil
	m, err := b.look(ctx)
	if err != nil {
		return capture.State{}, err
	}
	var found *site
	for _, v := range variants {
		s := m[v]
		switch {
		case s.four.empty() && s.six.empty():
		case found != nil:
			return capture.State{}, &capture.DamagedError{Err: errors.New("rules of outrider are in iptables-nft and in iptables-legacy at once: run capture again, or capture clean")}
		default:
			found = s
		}
	}
	sets, err := ipset.Read()
	if err != nil {
		return capture.State{}, err
	}
	if found == nil && len(sets) == 0 {
		return capture.State{}, capture.ErrNone
	}
	if found == nil {
		return capture.State{}, &capture.DamagedError{Err: errors.New("there are sets of a capture that was interrupted, and no rules: run it again, or capture clean")}
	}
	st, err := found.state(sets)
	if err != nil {
		return capture.State{}, &capture.DamagedError{Err: fmt.Errorf("reading the rules of iptables-%s: %w", found.variant, err)}
	}
	b.found, b.sets = found, sets
	return st, nil
}

// Recount returns st, a result of Read, with fresh counters. It starts no programs.
func (b *Backend) Recount(ctx context.Context, st capture.State) (capture.State, error) {
	if b.found == nil {
		return b.Read(ctx)
	}
	for _, family := range families {
		same, err := b.found.at(family).count(place{b.found.variant, family})
		if err != nil {
			return st, fmt.Errorf("reading the counters of iptables-%s: %w", b.found.variant, err)
		}
		if !same { // another program changed the rules
			return b.Read(ctx)
		}
	}
	return b.found.state(b.sets)
}

// Keeps reports whether the rules in st may stay where they are, because b writes the same variant.
func (b *Backend) Keeps(st capture.State) bool { return b.Variant == "" || b.Variant == st.Variant }

// Remove deletes all our rules, of both families and in both variants. The kernel's own tables and
// chains remain, empty if no other program uses them: iptables creates them, and cannot delete
// them.
func (b *Backend) Remove(ctx context.Context) error {
	m, err := b.look(ctx)
	if err != nil {
		return err
	}
	b.seen = nil
	var errs []error
	for _, s := range m.removal() {
		if err := s.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("removing rules: %w", err))
		}
	}
	return errors.Join(append(errs, ipset.Remove())...)
}

// A step changes the rules of one family in one variant from one state to another.
type step struct {
	variant  variant
	family   capture.Families
	from, to owned
}

func (s step) run(ctx context.Context) error {
	text := transition(s.from, s.to)
	if text == "" {
		return nil
	}
	return restore(ctx, s.variant, s.family, text)
}

// undoTime bounds how long restoring the old rules may take. The caller's context may have ended by
// then.
const undoTime = 10 * time.Second

// perform runs the steps. If one fails, it undoes the steps so far, including the failed one, which
// may have written some tables.
func perform(ctx context.Context, steps []step) error {
	for i, s := range steps {
		err := s.run(ctx)
		if err == nil {
			continue
		}
		err = fmt.Errorf("writing rules: %w", err)
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		for j := i; j >= 0; j-- {
			if undoErr := steps[j].undo(back); undoErr != nil {
				err = fmt.Errorf("%w; putting the old rules back: %w", err, undoErr)
			}
		}
		return err
	}
	return nil
}

func (s step) undo(ctx context.Context) error {
	now, err := save(ctx, s.variant, s.family)
	if err != nil {
		return err
	}
	return step{s.variant, s.family, now, s.from}.run(ctx)
}
