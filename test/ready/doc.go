// Package ready tests the separate module outrider.dev/ready with real parts: network faults in a network
// namespace, the agent's status server, and the state files of gates. Each wait runs in a separate process
// in that namespace.
package ready
