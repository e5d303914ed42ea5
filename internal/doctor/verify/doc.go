// Package verify is a model checker for plans: it searches for a run of the pod that
// violates the plan.
//
// [Explore] combines the kubelet's rules (package kubelet) with the state within the
// containers (package gates), and tries every order of events: starts, ends, health, probe
// results, hooks, time, and a number of faults at every step: a crash, a SIGKILL that leaves
// a stale record, a missing image, a hook that fails, a sandbox that dies. The search is
// breadth first, at first without faults and then with one more each time, so that a
// counterexample has the fewest faults and is the shortest run with as many.
// [startup.Check] decides what a violation is.
//
// Where to read:
//
//	verify.go  the question, its bounds, the result, what the model omits
//	search.go  breadth first, no state twice
//	moves.go   the transitions from a state
//	judge.go   whether a run violates the plan
package verify
