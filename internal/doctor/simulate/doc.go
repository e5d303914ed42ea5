// Package simulate plays the start and the stop of a pod on a virtual clock: the
// kubelet's rules (package kubelet), what goes on within the containers (package
// gates), and a world that behaves as described.
//
//	outcome, err := simulate.Run(simulate.Scenario{Pod: pod, Plan: plan, Behaviour: behaviour})
//
// The same scenario always has the same outcome, whatever machine it runs on: a
// day of a pod takes milliseconds.
//
// Where to read:
//
//	scenario.go   the input and the outcome
//	behaviour.go  how the world behaves
//	text.go       behaviours as text
//	clauses.go    the statements about a container
//	run.go        the loop: the next event, then its consequences
//	world.go      how the world answers the kubelet
//	life.go       what a container does while it runs
//	settle.go     transitions within the containers: gates, hooks, last calls
//
// Package chart draws the outcome.
//
// Left out: what the kubelet's model leaves out, the time that a gate or the
// runtime needs by itself (it is 0 here, some 10 ms on a node), and any load: a
// slow container does not slow down another one.
package simulate
