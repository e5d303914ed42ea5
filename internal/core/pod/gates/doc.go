// Package gates models the inside of a pod's containers, which the kubelet does not see: commands that run
// or still wait at their gate, their health, and the states that gates publish for one another.
//
// Like package kubelet it is a pure state machine: a [State] is a value, and a key is equal for states that
// behave alike. The caller first gives each event to the kubelet, and then the resulting timeline to
// [State.Follow], which adds the gates: for a container with a gate, "started" becomes "waiting", until
// [State.Release].
//
// Where to read:
//
//	state.go  the state, and the events that change it
//	gate.go   what a gate sees, when it opens, and what it does afterwards
//	key.go    which states are alike
//
// The model assumes that a gate reads and acts in one instant, and publishes a change the instant it
// happens. The tests of the gate cover what can go wrong in between.
package gates
