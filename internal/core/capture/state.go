package capture

import "errors"

// A State is a rule set in the kernel, with its counters.
type State struct {
	Ruleset
	// Packets contains, by the name of the chain, a counter for each rule: the packets that met all
	// its conditions since the rules were written.
	Packets map[string][]uint64
	Variant string // "legacy" or "nft", if iptables made the rules
}

// ErrNone means that a network namespace contains no rules of ours.
var ErrNone = errors.New("no rules of outrider here")

// A DamagedError reports that rules of ours are incomplete, or were changed by another program. A
// new capture replaces them.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string { return e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// Count returns the number of packets that met rules with this reason.
func (s State) Count(reason string) uint64 {
	var n uint64
	for _, c := range s.Chains {
		for i, r := range c.Rules {
			if r.Reason == reason && i < len(s.Packets[c.Name]) {
				n += s.Packets[c.Name][i]
			}
		}
	}
	return n
}

// Parked returns the number of connection attempts that were made to wait.
func (s State) Parked() uint64 { return s.Count(ReasonParked) + s.Count(ReasonFirst) }

// Restore sets fields that nftables does not store. A chain without a hook gets the table of the
// chains that go to it. The families follow from the guards at the beginning of hooked chains.
func (s *State) Restore() {
	if c := s.Chain(recordChain); c != nil {
		c.Table = Filter
	}
	for again := true; again; {
		again = false
		for i := range s.Chains {
			for _, r := range s.Chains[i].Rules {
				if to := s.Chain(r.Action.Name); r.Action.Verb == Goto && to != nil && to.Table == "" && s.Chains[i].Table != "" {
					to.Table, again = s.Chains[i].Table, true
				}
			}
		}
	}
	s.Families = DualStack
	for _, c := range s.Chains {
		if len(c.Rules) == 0 || c.Hook == NoHook {
			continue
		}
		for _, f := range []Families{IPv4, IPv6} {
			if guard := c.Rules[0]; guard.Reason == guardReason(f) {
				s.Families = f
			}
		}
	}
}
