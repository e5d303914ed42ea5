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
//	scenario.go   what is simulated, what comes out
//	behaviour.go  how the world behaves
//	text.go       behaviours as text
//	clauses.go    the statements about a container
//	run.go        the loop: the next thing, then what follows from it
//	world.go      how the world answers the kubelet
//	life.go       what a container does while it runs
//	settle.go     what follows within the containers: gates, hooks, last calls
//
// Package chart draws what comes out.
//
// Left out: what the kubelet's model leaves out, the time that a gate or the
// runtime needs by itself (it is 0 here, some 10 ms on a node), and any load: one
// slow container does not make another one slow.
package simulate
