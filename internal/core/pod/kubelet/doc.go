// Package kubelet models what the kubelet does to the containers of one pod, as a pure state machine. Its input
// are events (a container exited, a hook returned, a probe answered, time passed); its output are actions (pull,
// start, run a hook, probe, stop).
//
//	s := kubelet.New(pod, kubelet.Minor(34))
//	s, actions := s.Step(kubelet.Event{Kind: kubelet.Added})                // create the sandbox
//	s, actions = s.Step(kubelet.Event{Kind: kubelet.SandboxReady, OK: true}) // pull the image of proxy
//
// A [State] is a value: Step returns a new one and does not change the old one. The same events always lead to
// the same states, and [State.Key] is equal for states that will behave alike. So a simulator can run the machine
// on a virtual clock, a verifier can explore every interleaving, an environment of real processes can be driven
// by it, and the trace of a real kubelet can be replayed on it.
//
// The kubelet works on a pod in passes: a pass is one call of SyncPod. In a relist it reads the containers'
// state from the runtime. The machine has no clock. [State.Next] returns the time at which the caller must call
// Step again at the latest. [State.Open] returns the actions that have not been answered yet; the answer to any
// of them can be the next event.
//
// Files, in the order of a pod's life:
//
//	pod.go      the pod's spec, as far as the kubelet's rules depend on it
//	version.go  the differences between Kubernetes 1.28 and 1.36
//	event.go    events and actions
//	state.go    the state and its parts
//	step.go     the effect of an event, and of time
//	view.go     the visible part of the state
//	schedule.go when the next pass (SyncPod) runs
//	pass.go     the steps of a pass, and their order
//	decide.go   which containers to start, restart or kill
//	init.go     the same for init containers
//	sandbox.go  the sandbox, and the consequences of its end
//	life.go     the runtime's record of a container
//	start.go    starting one container: pull, start, postStart; backoff.go: the delays
//	probe.go    startup, liveness and readiness probes
//	stop.go     preStop, waiting for other containers to stop, SIGTERM, SIGKILL
//	ending.go   the end of the pod: deletion, the final phase
//	status.go   the status in the API: phase, conditions, pod IP
//	key.go      which states are alike
//	timeline.go events and actions as events of package startup
//
// Each rule is written once, with its source. In sources, "kuberuntime" is pkg/kubelet/kuberuntime of
// kubernetes v1.34.4, and other paths are below pkg/kubelet of the same version. The named functions were
// compared with v1.36.3. The differences are in version.go, or are left out. The tests replay traces of real
// kubelets of both versions (testdata/traces, docs/kubelet.md); conformance_test.go lists where the model differs
// from the traces.
//
// Not modelled: ephemeral containers, in-place resize, restart rules by exit code (KEP-5307, KEP-5532), eviction
// and node shutdown, static pods, volumes and admission, readiness gates, host network, restart of the kubelet
// itself, a second deletion with a shorter grace period, containers that the kubelet's garbage collection
// removes, jitter, the resync every minute, and the time to stop a sandbox. There are three simplifications. A
// pass sees the containers as they are when it begins; a real pass sees them as they were at the last relist. Two
// changes seen by one relist cause one pass; a real kubelet may begin two. Several containers are killed in the
// pod's order; in a real kubelet that order is random.
//
// The package does no I/O, reads no clock, starts no goroutine and imports only the standard library and package
// startup.
package kubelet
