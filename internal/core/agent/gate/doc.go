// Package gate runs a container's command when its dependencies are there, and is PID 1 for
// it from then on.
//
// At every start of its container a gate waits until all edges of the plan that lead to it
// hold at one moment; then it starts the command as its child. It publishes the state of the
// container (package state), and reads the records that the other gates publish. Nothing is
// polled that can notify: records change by event, and an endpoint that holds requests
// (?wait=) answers once.
//
// Package internal/core/pod/gates is the model of a gate; [startup.Edge.Decide] is the rule of both.
package gate
