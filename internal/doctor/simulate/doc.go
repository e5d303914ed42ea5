// Package simulate simulates the start and the stop of a pod on a virtual clock. It
// combines the kubelet's rules (package kubelet), the state within the containers
// (package gates), and an environment that behaves as the caller describes.
//
//	outcome, err := simulate.Run(simulate.Scenario{Pod: pod, Plan: plan, Behaviour: behaviour})
//
// The same scenario always has the same outcome, on every machine. Simulating a day
// of a pod takes milliseconds.
//
// Where to read:
//
//	scenario.go   the input and the outcome
//	behaviour.go  behaviour of the environment and the containers
//	text.go       behaviours as text
//	clauses.go    the statements about a container
//	run.go        the loop: the next event, then its consequences
//	world.go      results of the kubelet's actions
//	life.go       events while a container runs
//	settle.go     transitions within the containers: gates, hooks, health, stops
//
// Package chart draws the outcome.
//
// The simulation leaves out what the kubelet's model leaves out. A gate and the
// runtime need no time themselves (on a node they need some 10 ms), and there is
// no load: a slow container does not slow down another one.
package simulate
