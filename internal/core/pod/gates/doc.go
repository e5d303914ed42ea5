// Package gates models what happens inside a pod's containers, where the kubelet does not see it: whether the
// command runs or still waits at its gate, its health, and the states that gates publish for one another.
//
// Like package kubelet it is a pure state machine: a [State] is a value, and states that behave alike have equal
// keys. The caller first gives each event to the model of the kubelet, and then the resulting timeline to
// [State.Follow], which adds the effect of gates: for a container with a gate, "started" becomes "waiting" until
// [State.Release].
//
// Files:
//
//	state.go  the state, and the events that change it
//	gate.go   what a gate sees, when it opens, and what it does afterwards
//	key.go    which states are alike
//
// The model assumes that a gate reads states and acts on them at the same time, and publishes a change as soon as
// it happens. The tests of the gate itself cover what can go wrong in between.
package gates
