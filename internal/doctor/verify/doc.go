// Package verify is a model checker for plans: it searches for a run of the pod that
// violates the plan.
//
// [Explore] combines the kubelet's rules (package kubelet) with the state within the
// containers (package gates), and tries every order of events: starts, ends, health, probe
// results, hooks and time. At every step, faults may happen too, up to a limit: a crash, a
// SIGKILL that leaves a stale record, a missing image, a hook that fails, a sandbox that dies.
//
// The search is breadth first. It is repeated with one more fault each time, from none. So a
// counterexample has the fewest faults, and is the shortest run with that number of faults that the search keeps.
// [startup.Check] decides whether a run violates the plan.
//
// Where to read:
//
//	verify.go  the question, its bounds, the result, omissions of the model
//	search.go  the breadth-first search, which visits no state twice
//	moves.go   the transitions from a state
//	reduce.go  which differences between states have no effect
//	judge.go   violations of the plan
package verify
