// Package verify looks for a way to break a plan, by trying them all.
//
// [Explore] puts the kubelet's rules (package kubelet) and what goes on within
// the containers (package gates) together, and tries every order in which a
// pod's world can answer: starts, ends, health, probe results, hooks, time, and
// a number of faults at every step: a crash, a SIGKILL that leaves a stale state
// behind, an image that is not there, a hook that fails, a sandbox that dies. It
// goes breadth first, without faults and then with ever more of them, so that what
// it finds needs the fewest faults and is the shortest such run. [startup.Check] is
// the judge of it.
//
// Where to read:
//
//	verify.go   the question, its bounds, the result
//	search.go   breadth first, no state twice
//	moves.go    what can happen next
//	judge.go    is this a breach?
//	leftout.go  what the model does not contain
//	text.go     a result for people
package verify
