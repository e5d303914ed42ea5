// Package startup models the order in which the containers of one pod start and stop.
//
// A [Plan] names the containers and the edges between them: "app after proxy is healthy". A [Mechanism] is a
// way to enforce an edge; it states which guarantees it gives, which it does not, and why. A [Timeline]
// records what then happened, on a real node or in a simulator. [Check] compares plan and timeline. The
// injector, the linter, the simulator and the diagnoser all use these types, so that each start-up rule is
// written down once.
//
// The conditions have the names of Docker Compose's: started, healthy, completed. Containers start in the order of
// the edges and stop in the reverse order.
//
// Where to read:
//
//	plan.go       the vocabulary: Plan, Container, Edge, Condition
//	text.go       plans as text, for people and for tests
//	expand.go     "*", everything after the proxy
//	order.go      start order, stop order, cycles
//	waits.go      which container waits for which, the kubelet's own order included
//	validate.go   plans that cannot work, each with a remedy
//	mechanism.go  how an edge is kept, and how well
//	timeline.go   the events of a pod
//	check.go      whether a timeline kept the plan
//
// The package does no I/O, reads no clock and imports only the standard library.
package startup
