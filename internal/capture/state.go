package capture

import "errors"

// A State is a rule set as it stands in the kernel, with what it has counted.
type State struct {
	Ruleset
	// Packets counts for each rule, by the name of its chain, the packets that met
	// all its conditions since the rules were written.
	Packets map[string][]uint64
}

// ErrNone says that a network namespace holds no rules of ours.
var ErrNone = errors.New("no rules of outrider here")

// Count is the number of packets that rules with this reason have met.
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

// Parked is the number of connection attempts that were made to wait.
func (s State) Parked() uint64 { return s.Count(ReasonParked) + s.Count(ReasonFirst) }
