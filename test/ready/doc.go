// Package ready tries outrider.dev/ready, a module of its own, on real parts: faults of a network in a namespace, the status server
// of our agent, the states of gates. Each wait is a process of its own in the namespace.
package ready
