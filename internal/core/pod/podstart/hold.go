package podstart

import (
	"slices"

	"outrider.dev/startup"
)

// HoldNeedsHealth returns the reason why a hold cannot keep an edge with a condition other than healthy.
func HoldNeedsHealth(after startup.Condition) string {
	return "a hook holds until its container is healthy, and not until it is " + string(after)
}

// OrderForHold returns the list in an order for a hold: e.From comes before e.To, but after all containers for
// which e.From waits, because the hook of e.From would hold them back forever. The order of the other containers
// does not change.
func OrderForHold[T any](list []T, name func(T) string, e startup.Edge, needs startup.Dependency) []T {
	first := slices.IndexFunc(list, func(c T) bool { return name(c) == e.From || name(c) == e.To })
	var needed, from, others []T
	for _, c := range list[first:] {
		switch {
		case name(c) == e.From:
			from = append(from, c)
		case needs.Needs(e.From, name(c)):
			needed = append(needed, c)
		default:
			others = append(others, c)
		}
	}
	return slices.Concat(list[:first], needed, from, others)
}
