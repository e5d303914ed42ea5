// Package supervise keeps one child process alive: Envoy, below the agent.
//
// What happens when is one table of states and events ([Next]); it is pure, and its
// actions are values. How often a child is started again is a second pure part
// (backoff.go). The effects are apart: [Start] runs a child that dies with the agent,
// and keeps its last lines, [Reap] collects orphans, and a [Supervisor] carries
// actions out and turns what happens into events.
//
// The package knows nothing of Envoy: when a child is ready, how it is drained and why
// it ended are functions in [Options].
package supervise
