// Package traces records a real kubelet's handling of a pod as text, with which the
// model of the kubelet is compared (internal/core/pod/kubelet/testdata/traces).
//
// A scenario is a pod and a script of events (scenarios/*.txt). [Recorder.Record]
// runs one in a test cluster and returns its trace. The containers run package
// witness, which behaves as its arguments say and records each start, signal,
// hook and probe. Other facts are observed from outside:
//
//	witness       first instruction, SIGTERM, hooks and probes called and answered
//	containerd    sandbox and containers made, started and ended (ctr events)
//	API server    status and events, by watch
//	kubelet's log relists, passes, when it was given the pod and its deletion
//
// All use the same clock. Recorder runs inside the cluster's namespaces; cmd brings
// a cluster up and starts it there.
package traces
