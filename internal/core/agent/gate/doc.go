// Package gate runs a container's command once its dependencies are ready. The gate is the
// container's PID 1, and the command is its child.
//
// At every start of its container, a gate waits until all edges of the plan that lead to the container are
// satisfied at the same moment; then it starts the command. It publishes the state of the container (package
// state), and reads the records of the other gates. It polls as little as possible: a change of a record
// arrives as an event, and an endpoint that supports ?wait= delays its response until it is healthy.
//
// Package internal/core/pod/gates simulates a gate. Both decide by [startup.Edge.Decide].
package gate
