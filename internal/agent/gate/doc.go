// Package gate runs a container's command when what it depends on is there, and is PID 1
// for it from then on.
//
// A gate waits, at every start of its container, until all edges of the plan that lead to
// it hold at one moment; then it starts the command as its child. It publishes how far the
// container is (package state), so that others can wait for it, and goes by what they
// publish. Nothing is polled that can say so itself: states are heard of by event, and an
// address that holds requests (?wait=) answers once.
//
// Where to read:
//
//	options.go    what a gate is told
//	decide.go     when it opens, and who is asked to follow whom: pure
//	run.go        one goroutine to which everything happens
//	wait.go       the command waits
//	child.go      the command runs: process group, terminal, exit status
//	signals.go    which signal means what
//	rtmin.go      one that Go's runtime does not know
//	stop.go       reverse order, and helpers of a Job
//	follow.go     a dependency came back
//	health.go     probes and hooks
//	notify.go     sd_notify and the newline of s6
//	ask.go        containers without a state, asked over HTTP
//	probe.go, probejson.go, grpc.go   Kubernetes' probes, run inside the pod
//
// What happens when agrees with internal/model/simulate/inside, which verifies it.
package gate
