// Package startup models the order in which the containers of one pod start and stop.
//
// A [Plan] contains the containers and the edges between them: "app after proxy is healthy". A [Mechanism] is a
// method to enforce an edge; for each there are rules that state which guarantees it gives, which it does not,
// and why. A [Timeline] records what happened, on a real node or in a simulator. [Check] compares a plan with a
// timeline. The injector, the linter, the simulator and the diagnoser all use these types, so that each rule of
// starting is written only once.
//
// The conditions have the names of Docker Compose's: started, healthy, completed. Containers start in the order
// of the edges and stop in the reverse order.
//
// Files:
//
//	plan.go       the vocabulary: Plan, Container, Edge, Condition
//	text.go       plans as text, for people and for tests
//	expand.go     "*", everything after the proxy
//	order.go      start order, stop order, cycles
//	waits.go      the graph of waits between containers, including the kubelet's own order
//	validate.go   plans that cannot work, each with a remedy
//	mechanism.go  which edges a mechanism can enforce, and which guarantees it gives
//	timeline.go   the events of a pod
//	check.go      violations of a plan in a timeline
//
// The package does no I/O, reads no clock and imports only the standard library.
package startup
