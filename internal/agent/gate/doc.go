// Package gate runs a container's command when its dependencies are there, and is PID 1 for
// it from then on.
//
// At every start of its container a gate waits until all edges of the plan that lead to it
// hold at one moment; then it starts the command as its child. It publishes the state of the
// container (package state), and reads the records that the other gates publish. Nothing is
// polled that can notify: records change by event, and an endpoint that holds requests
// (?wait=) answers once.
//
// Where to read:
//
//	options.go    the options of a gate
//	decide.go     when it opens, and which container follows which: pure
//	run.go        one goroutine that handles all events
//	wait.go       the command waits
//	child.go      the command runs: process group, terminal, exit status
//	signals.go    which signal means what
//	stop.go       reverse order, and helpers of a Job
//	follow.go     a dependency has restarted
//	health.go     probes and hooks
//	notify.go     sd_notify and the newline of s6
//	poll.go       containers without a record, probed over HTTP
//	probe.go, probejson.go, grpc.go   Kubernetes' probes, run inside the pod
//
// Package internal/model/gates is the model of a gate; [startup.Edge.Decide] is the rule of both.
package gate
