// Package ready tests outrider.dev/ready, a module of its own, with real parts: network faults in a
// namespace, the agent's status server, the state files of gates. Each wait is a process of its own
// in the namespace.
package ready
