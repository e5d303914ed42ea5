// Package setup writes a rule set into a network namespace and proves that it works.
//
// It chooses the backend, replaces the rules of an earlier run, reads the kernel's state back and
// tests both directions. After an error it restores the earlier state, or removes everything if
// there was none: it leaves no partial state.
package setup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/nftables"
	"outrider.dev/internal/core/capture/trace"
)

// A Backend writes rule sets to one of the kernel's packet filters. Apply replaces our rules there, and changes
// nothing on an error. If there are no rules of ours, Read returns capture.ErrNone, and Remove does nothing.
type Backend interface {
	Name() string
	Apply(context.Context, capture.Ruleset) error
	Read(context.Context) (capture.State, error)
	Remove(context.Context) error
}

// Options configure a run.
type Options struct {
	Intent   capture.Intent
	Backends []Backend // tried in this order; rules in the others are removed
	NoProof  bool      // the rules are neither read back nor tested
}

// A Report describes the result of a run.
type Report struct {
	Ruleset   capture.Ruleset
	Unchanged bool     // the same rules, and their routing, existed already
	Notes     []string // settings without effect, and features that this machine does not support
	Proofs    []Proof  // empty with NoProof
	Parked    uint64   // connection attempts that were made to wait so far

	routing routingChange
}

// Capture replaces the rules of the current namespace with those of the intent.
func Capture(ctx context.Context, o Options) (Report, error) {
	var report Report
	if o.Intent.Families == 0 {
		o.Intent.Families = capture.FamiliesOf(localAddresses())
	}
	old, err := find(ctx, o.Backends)
	if err != nil {
		return report, err
	}
	if o.Intent.Nothing() {
		report.Ruleset, report.Notes = capture.Build(o.Intent, capture.NFTables)
		err = removeFound(ctx, old)
	} else {
		var b Backend
		if b, err = write(ctx, o, old, &report); err == nil {
			err = finish(ctx, o, b, old, &report)
		}
	}
	if err != nil {
		err = errors.Join(err, restore(ctx, o.Backends, old, report.routing))
	}
	return report, err
}

// found is a rule set of ours, with the backend that contains it.
type found struct {
	by    Backend
	state capture.State
	err   error // the rules are unreadable: incomplete, or changed by another program
}

// intact reports whether f is exactly what a single run of capture wrote.
func (f found) intact() bool {
	_, ok := f.state.Recorded()
	return f.err == nil && ok
}

// find returns our rule sets. If a backend cannot be read, the result is an error, because it is not known
// whether that backend contains rules of ours.
func find(ctx context.Context, backends []Backend) ([]found, error) {
	var out []found
	for _, b := range backends {
		f := found{by: b}
		f.state, f.err = readState(ctx, b)
		var damaged *capture.DamagedError
		switch {
		case errors.Is(f.err, capture.ErrNone), nftables.Unsupported(f.err):
			continue
		case f.err != nil && !errors.As(f.err, &damaged):
			return nil, f.err
		}
		out = append(out, f)
	}
	return out, nil
}

// readState reads the rules of a backend and their routing.
func readState(ctx context.Context, b Backend) (capture.State, error) {
	state, err := b.Read(ctx)
	if err != nil {
		return state, err
	}
	state.Routing, err = readRouting(state.Ruleset)
	return state, err
}

// usesSixSource reports whether rs uses the address ::6, which other meshes add to lo too.
func usesSixSource(rs capture.Ruleset) bool {
	return anyRule(rs, func(r capture.Rule) bool {
		return slices.ContainsFunc(r.Match, func(m capture.Match) bool {
			return m.Key == capture.Source && m.Prefix == sixSource
		})
	})
}

// anyRule reports whether f is true for a rule of rs.
func anyRule(rs capture.Ruleset, f func(capture.Rule) bool) bool {
	return slices.ContainsFunc(rs.Chains, func(c capture.Chain) bool { return slices.ContainsFunc(c.Rules, f) })
}

// write writes the rules with the first backend that supports them, and returns that backend.
func write(ctx context.Context, o Options, old []found, report *Report) (Backend, error) {
	var reasons []error
	reason := func(err error) {
		// Both parking modes may fail for the same reason.
		if !slices.ContainsFunc(reasons, func(r error) bool { return r.Error() == err.Error() }) {
			reasons = append(reasons, err)
		}
	}
	for _, parking := range parkModes(o.Intent.Park) {
		for _, b := range o.Backends {
			if _, ok := b.(notChosen); ok {
				continue
			}
			in, limits, err := within(ctx, b, o.Intent)
			if err != nil {
				reason(err)
				continue
			}
			in.Park = parking
			rs, notes := capture.Build(in, b.Name())
			err = writeBy(ctx, b, rs, old, report)
			if err == nil {
				report.Ruleset = rs
				report.Notes = append(report.Notes, limits...)
				if parking != o.Intent.Park {
					notes = append(notes, "this kernel cannot match sockets: parking is off, early connections are refused")
				}
				report.Notes = append(report.Notes, notes...)
				return b, nil
			}
			if b.Name() == capture.NFTables && !nftables.Unsupported(err) {
				return nil, err
			}
			reason(err)
		}
	}
	if o.Intent.Park == capture.ParkRequire {
		reasons = append(reasons, errors.New("--park=require; --park=on would go on without parking"))
	}
	return nil, errors.Join(reasons...)
}

// within restricts an intent to the features that a backend has here: the families that it filters,
// and sets.
func within(ctx context.Context, b Backend, in capture.Intent) (capture.Intent, []string, error) {
	limited, ok := chosenOrNot[interface {
		Available(context.Context) (capture.Families, error)
		Sets() error
	}](b)
	if !ok {
		return in, nil, nil
	}
	can, err := limited.Available(ctx)
	if err != nil {
		return in, nil, err
	}
	var notes []string
	if !can.Has(in.Families) {
		if in.Families &= can; in.Families == 0 {
			return in, nil, fmt.Errorf("the %s backend can only filter %s here", b.Name(), can)
		}
		notes = append(notes, fmt.Sprintf("the %s backend can only filter %s here", b.Name(), can))
	}
	if rs, _ := capture.Build(in, b.Name()); slices.ContainsFunc(rs.Sets, capture.Set.IPSet) {
		if err := limited.Sets(); err != nil {
			in.SingleRules = true
			notes = append(notes, fmt.Sprintf("long lists are a rule for each element, which is slow: %v", err))
		}
	}
	return in, notes, nil
}

// parkModes returns the parking modes to try, best first.
func parkModes(mode capture.ParkMode) []capture.ParkMode {
	if mode == capture.ParkOn {
		return []capture.ParkMode{capture.ParkOn, capture.ParkOff}
	}
	return []capture.ParkMode{mode}
}

// writeBy writes rs and its routing, unless they exist already.
func writeBy(ctx context.Context, b Backend, rs capture.Ruleset, old []found, report *Report) error {
	same := len(old) == 1 && old[0].by == b && old[0].intact() && capture.Diff(rs, old[0].state.Ruleset) == nil
	if k, ok := b.(interface{ Keeps(capture.State) bool }); ok && same {
		same = k.Keeps(old[0].state)
	}
	err := report.routing.add(usesSix(old), rs.Routing, rs.Families)
	report.Unchanged = same && len(report.routing.added) == 0 // the routing may have been removed since it was read
	if err != nil || same {
		return err
	}
	if err := guardSwitch(ctx, b, old); err != nil {
		return err
	}
	return b.Apply(ctx, rs)
}

// guardSwitch makes new connections wait before b replaces the rules of another backend: the rules
// of two backends together would refuse some connections. Only iptables needs the guard; nftables
// removes its rules at once.
func guardSwitch(ctx context.Context, b Backend, old []found) error {
	for _, f := range old {
		if f.by.Name() == b.Name() {
			continue
		}
		for _, by := range []Backend{b, f.by} {
			if g, ok := chosenOrNot[interface{ Guard(context.Context) error }](by); ok {
				if err := g.Guard(ctx); err != nil {
					return err
				}
			}
		}
		if f.by.Name() == capture.NFTables {
			if err := f.by.Remove(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish completes a run after the rules are written: it removes the rules of other backends, reads
// back and tests, and removes stale routing.
func finish(ctx context.Context, o Options, b Backend, old []found, report *Report) error {
	for _, f := range old {
		if f.by.Name() == b.Name() {
			continue
		}
		if err := f.by.Remove(ctx); err != nil {
			return fmt.Errorf("removing the rules of the %s backend: %w", f.by.Name(), err)
		}
	}
	report.Notes = append(report.Notes, report.routing.notes...)
	var err error
	switch {
	case o.NoProof:
	case report.Unchanged: // nothing was written since the last read
		err = try(ctx, b, old[0].state, report)
	default:
		err = check(ctx, b, report.Ruleset, report)
	}
	if err != nil {
		return err
	}
	return report.routing.finish()
}

// check reads rs back, compares, and tests both directions.
func check(ctx context.Context, b Backend, rs capture.Ruleset, report *Report) error {
	state, err := readState(ctx, b)
	if err != nil {
		return fmt.Errorf("reading the rules back: %w", err)
	}
	if diff := capture.Diff(rs, state.Ruleset); diff != nil {
		return mismatch(diff)
	}
	return try(ctx, b, state, report)
}

// try proves that the rules in state, which b has written, capture both directions.
func try(ctx context.Context, b Backend, state capture.State, report *Report) (err error) {
	report.Parked = state.Parked()
	if err := deliversMarked(state); err != nil {
		return err
	}
	again := func() (capture.State, error) { return b.Read(ctx) }
	if counter, ok := b.(interface {
		Recount(context.Context, capture.State) (capture.State, error)
	}); ok {
		again = func() (capture.State, error) { return counter.Recount(ctx, state) }
	}
	if report.Proofs, err = prove(ctx, state, again); err != nil {
		err = blame(err, b.Name())
	}
	return err
}

// mismatch reports that the rules in the kernel differ from the intended ones.
func mismatch(diff []string) error {
	return errors.New("the kernel's rules differ (- missing, + unexpected):\n  " + strings.Join(diff, "\n  "))
}

// restore brings the kernel back to its state before a failed run. It first reads the current state, because a
// failed step may have changed it. If the current state differs from the earlier one, restore writes the old
// rules and their routing, or removes everything if there were none. The argument routing is the change that
// the run made.
func restore(ctx context.Context, backends []Backend, old []found, routing routingChange) error {
	// The context may have ended.
	ctx = context.WithoutCancel(ctx)
	var errs []error
	now, err := find(ctx, backends)
	switch {
	case err == nil && slices.EqualFunc(now, old, found.equal):
		errs = append(errs, routing.undo())
	case len(old) == 1 && old[0].intact():
		f := old[0]
		errs = append(errs, new(routingChange).add(false, f.state.Routing, f.state.Families), f.by.Apply(ctx, f.state.Ruleset))
		for _, b := range backends {
			if b != f.by {
				errs = append(errs, b.Remove(ctx))
			}
		}
		errs = append(errs, routing.undo())
	default:
		for _, b := range backends {
			errs = append(errs, b.Remove(ctx))
		}
		errs = append(errs, routing.undo(), removeRouting(usesSix(old)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("and putting back what was there: %w", err)
	}
	return nil
}

// equal reports whether two reads of the kernel had the same result.
func (f found) equal(g found) bool {
	return f.by == g.by && fmt.Sprint(f.err) == fmt.Sprint(g.err) && capture.Diff(f.state.Ruleset, g.state.Ruleset) == nil
}

// Clean removes everything of ours from the current namespace. If a backend cannot be read, it
// removes nothing.
func Clean(ctx context.Context, backends []Backend) error {
	old, err := find(ctx, backends)
	if err != nil {
		return err
	}
	return removeFound(ctx, old)
}

// removeFound removes the rule sets that were found, and the routing.
func removeFound(ctx context.Context, old []found) error {
	var errs []error
	for _, f := range old { // including damaged rule sets
		errs = append(errs, f.by.Remove(ctx))
	}
	return errors.Join(append(errs, removeRouting(usesSix(old)))...)
}

// usesSix reports whether rules that were found use the address ::6.
func usesSix(old []found) bool {
	return slices.ContainsFunc(old, func(f found) bool { return f.state.Routing.SixSource })
}

// Verify checks that the rules are complete and unchanged, that they match the intent (if it is not
// nil), that nothing of another run is left, and that the rules work.
func Verify(ctx context.Context, backends []Backend, intent *capture.Intent) (Report, error) {
	var report Report
	have, err := find(ctx, backends)
	if err != nil {
		return report, err
	}
	switch len(have) {
	case 0:
		return report, capture.ErrNone
	case 1:
	default:
		return report, errors.New("two backends have rules of Outrider's; run capture or capture clean")
	}
	if have[0].err != nil {
		return report, have[0].err
	}
	state := have[0].state
	report.Ruleset, report.Unchanged = state.Ruleset, true
	here := capture.FamiliesOf(localAddresses())
	switch {
	case state.Families.Has(capture.IPv6) && state.Routing != (capture.Routing{}) && ipv6Off():
		report.Notes = append(report.Notes, noteIPv6Off)
	case here.Has(capture.IPv6) && !state.Families.Has(capture.IPv6):
		report.Notes = append(report.Notes, "the rules are for IPv4 alone, and there are IPv6 addresses here: their connections are not captured")
	}
	if intent != nil {
		in := *intent
		if in.Families == 0 {
			in.Families = here
		}
		in, limits, err := within(ctx, have[0].by, in)
		if err != nil {
			return report, err
		}
		want, notes := capture.Build(in, state.Backend)
		report.Notes = slices.Concat(report.Notes, limits, notes)
		if diff := capture.Diff(want, state.Ruleset); diff != nil {
			return report, mismatch(diff)
		}
	}
	if err := checkRouting(state); err != nil {
		return report, err
	}
	err = try(ctx, have[0].by, state, &report)
	return report, err
}

// Network returns the addresses and routes of the current namespace.
func Network() trace.Network {
	var n trace.Network
	for _, a := range localAddresses() {
		if !a.IsLoopback() {
			n.Addrs = append(n.Addrs, a)
		}
	}
	n.Out = interfaceTo
	return n
}

// localAddresses returns the addresses of this namespace, or none if they cannot be listed.
func localAddresses() []netip.Addr {
	r, err := openRouter()
	if err != nil {
		return nil
	}
	defer r.Close()
	addrs, _ := r.addresses()
	var out []netip.Addr
	for _, a := range addrs {
		out = append(out, a.prefix.Addr())
	}
	return out
}
