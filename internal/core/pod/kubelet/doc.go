// Package kubelet models what the kubelet does to the containers of one pod, as a
// pure state machine: events in (a container exited, a hook returned, a probe
// answered, time passed), actions out (pull, start, run a hook, probe, stop).
//
//	s := kubelet.New(pod, kubelet.Minor(34))
//	s, actions := s.Step(kubelet.Event{Kind: kubelet.Added})                // create the sandbox
//	s, actions = s.Step(kubelet.Event{Kind: kubelet.SandboxReady, OK: true}) // pull the image of proxy
//
// A [State] is a value: Step returns a new one and leaves the old one as it was,
// the same events always give the same states, and [State.Key] is equal for
// states that will behave alike. So a simulator can run it on a virtual clock, a
// verifier can explore every interleaving, real processes can be driven by it,
// and the trace of a real kubelet can be replayed on it.
//
// The machine has no clock. [State.Next] is when it must be called again at
// the latest; [State.Open] is the actions without an answer yet, that
// is, everything that can happen next.
//
// Where to read, in the order of a pod's life:
//
//	pod.go      what the kubelet was given
//	version.go  what differs between Kubernetes 1.28 and 1.36
//	event.go    events and actions
//	state.go    the state and its parts
//	step.go     what an event changes, and what is due when time passes
//	view.go     what can be seen of it
//	schedule.go when the next pass (SyncPod) runs
//	pass.go     what a pass does in which order
//	decide.go   what is to be done: start, restart, kill
//	init.go     the same for init containers
//	sandbox.go  the sandbox, and what its end means
//	life.go     what the runtime knows of a container
//	start.go    starting one container: pull, start, postStart; backoff.go: what delays it
//	probe.go    startup, liveness and readiness probes
//	stop.go     preStop, SIGTERM, turns, SIGKILL
//	ending.go   the end of the pod: deletion, the final phase
//	status.go   what the API shows: phase, conditions, pod IP
//	key.go      which states are alike
//	timeline.go what happened, in the words of package startup
//
// Each rule stands once, with its source. "kuberuntime" there is
// pkg/kubelet/kuberuntime of kubernetes v1.34.4, and other paths are below
// pkg/kubelet of the same version. The functions named were compared with those
// of v1.36.3; what differs is in version.go, or left out. Traces of real kubelets of
// both versions are replayed in the tests (testdata/traces, docs/kubelet.md); what
// differs from those is in conformance_test.go.
//
// Left out: ephemeral containers, in-place resize, restart rules by exit code
// (KEP-5307, KEP-5532), eviction and node shutdown, static pods, volumes and
// admission, readiness gates, host network, restart of the kubelet itself, a
// second deletion with a shorter grace period, containers that the kubelet's
// garbage collection forgets, jitter, the resync every minute, and how long it takes
// to stop a sandbox. A pass sees the containers as they are when it begins, a real
// one as they were at the last relist. Two news of one relist make one pass, where
// a real kubelet may begin two; the order in which it kills several containers is the pod's here and
// any there.
//
// The package does no I/O, reads no clock, starts no goroutine and imports only
// the standard library and package startup.
package kubelet
