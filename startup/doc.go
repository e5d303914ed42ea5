// Package startup models how the containers of one pod come up, and go down.
//
// A [Plan] names the containers and the edges between them: "app after proxy is
// healthy". A [Mechanism] is a way to enforce an edge; it states what it keeps and
// what it does not, with the reason. A [Timeline] is what then happened, on a
// real node or in a simulator. [Check] compares plan and timeline. The injector,
// the linter, the simulator and the diagnoser all use these types, so that
// each start-up rule is written down once.
//
// The conditions are Compose's: started, healthy, completed. Containers start in
// the order of the edges and stop in the reverse order.
//
// Where to read:
//
//	plan.go       the vocabulary: Plan, Container, Edge, Condition
//	text.go       plans as text, for people and for tests
//	expand.go     "*", everything after the proxy
//	order.go      start order, stop order, cycles
//	waits.go      which container waits for which, the kubelet's own order included
//	validate.go   what cannot work, with a remedy
//	mechanism.go  how an edge is kept, and how well
//	timeline.go   what happened
//	check.go      was the plan kept?
//
// The package does no I/O, reads no clock and imports only the standard library.
package startup
