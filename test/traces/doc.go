// Package traces records as text how a real kubelet handles a pod. The model of the kubelet
// is compared with these traces (internal/core/pod/kubelet/testdata/traces).
//
// A scenario is a pod and a script of events (scenarios/*.txt). [Recorder.Record]
// runs a scenario in a test cluster and returns its trace. The containers run the program
// witness, whose behaviour its arguments define, and which records each start, signal,
// hook and probe. The sources of a trace are:
//
//	witness       first instruction, SIGTERM, hooks and probes called and answered
//	containerd    sandbox and containers made, started and ended (ctr events)
//	API server    status and events, by watch
//	kubelet's log relists, syncs of the pod, times at which it received the pod and its deletion
//
// All use the same clock, in seconds since the kubelet received the pod. A line with > is the kubelet's doing, one with < the
// world's, and one with . is only noted. Recorder runs inside the cluster's namespaces; cmd brings
// a cluster up and starts it there.
package traces
