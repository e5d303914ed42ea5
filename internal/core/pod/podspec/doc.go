// Package podspec is the only package that converts between a Kubernetes pod and a [startup.Plan].
//
// [Read] returns the order of a pod's start: the order that its annotations request, and every ordering that the
// pod already has, whether it comes from Istio, Linkerd, Kuma, Tekton or a sleep that a person wrote. [Write]
// adds a plan to a pod, with the mechanism that each edge names. [Without] removes an ordering.
//
// Write reads its result again before it returns it. So it never returns a pod without the requested order.
//
// Files:
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
//	server.go       programs that run until they get a signal, by name
//	health.go       where a proxy answers that it is healthy
//	bypass.go       containers whose connections are not captured
//	times.go        sleeps and hooks, whose times a plan does not contain
//	write.go        a plan into a pod
//	without.go      an ordering out of a pod
//
// The package does not change the pods that it is given, reads no clock and does no I/O.
package podspec
