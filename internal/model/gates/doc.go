// Package gates is what goes on within the containers of a pod, where the
// kubelet does not look: commands that run or still wait at their gate, health,
// and the states that gates publish for one another.
//
// It stands beside package kubelet, as a pure state machine of the same kind: a
// [State] is a value, and a key is equal for states that behave alike. Whoever
// drives both gives each event to the kubelet first, and what happened by it to
// [State.Follow], which puts the gates into it: for a container with a gate,
// "started" becomes "waiting", until [State.Release].
//
// Where to read:
//
//	state.go  the state, and what changes it
//	gate.go   what a gate sees, when it opens, what it does afterwards
//	key.go    which states are alike
//
// A gate is taken to look and to act in one instant, and to publish a change the
// instant it happens: what may go wrong between two instructions of the gate
// itself is a matter of its own tests.
package gates
