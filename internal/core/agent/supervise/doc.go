// Package supervise keeps one child process alive: Envoy, below the agent.
//
// The policy is a table of states and events ([Next]). It has no side effects; its actions
// are values. The pauses between restarts are a second part without side effects
// (backoff.go). The rest has effects: [Start] runs a child that dies with the agent and
// keeps the last lines of its output, [Reap] collects orphans, and a [Supervisor] carries
// out the actions and sends the events.
//
// The package does not depend on Envoy: functions in [Options] find out when a child is
// ready, drain it, and explain why it ended.
package supervise
