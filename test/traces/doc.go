// Package traces records what a real kubelet does with a pod, as text that the
// model of it is held against (internal/core/pod/kubelet/testdata/traces).
//
// A scenario is a pod and what happens to it (scenarios/*.txt). [Recorder.Record]
// runs one in a test cluster and returns its trace. The containers run package
// witness, which behaves as its arguments demand and writes down each start, signal,
// hook and probe. The rest is seen from outside:
//
//	witness       first instruction, SIGTERM, hooks and probes called and answered
//	containerd    sandbox and containers made, started and ended (ctr events)
//	API server    status and events, by watch
//	kubelet's log relists, passes, when it was given the pod and its deletion
//
// All have one clock. Recorder runs inside the cluster's namespaces; cmd brings
// one up and starts it there.
package traces
