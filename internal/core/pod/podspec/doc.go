// Package podspec is the only place that converts between a Kubernetes pod and a [startup.Plan].
//
// [Read] returns what a pod says and does about its start-up: the order that its annotations request, and
// every ordering that it already has, from any source: Istio, Linkerd, Kuma, Tekton, or a person with a
// sleep. [Write] puts a plan into the pod, with the mechanism that each edge names, and [Without] takes an
// ordering out.
//
// Write reads its result again before it returns it, so that a pod without the requested order never leaves
// this package.
//
// Where to read:
//
//	read.go         a pod as containers, and the recognisers over it
//	container.go    one container: its position in the pod, its restarts, its health report
//	native.go       sidecars: restartable init containers
//	hold.go         a proxy first in the list, with a postStart that blocks
//	init.go         plain init containers
//	gate.go         wrapped commands: ours, Tekton's, scuttle, kubexit, linkerd-await
//	rootstage.go    a proxy that copies the agent for the gates
//	gatekeep.go     what a gate takes over from the kubelet, and gives back
//	workaround.go   health loops, sleeps and hooks that people write
//	known.go        proxies and programs by name, as data
//	check.go        fields that the API server would refuse
//	times.go        sleeps and hooks, whose times a plan does not contain
//	write.go        a plan into a pod
//	without.go      an ordering out of a pod
//
// The package does not change the pods that it is given, reads no clock and does no I/O.
package podspec
