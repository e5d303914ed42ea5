// Package podspec is the only place that converts between a Kubernetes pod and a
// [startup.Plan].
//
// [Read] returns what a pod does about its
// start-up: what its annotations request, and every ordering that is already in
// it, from any source: Istio, Linkerd, Kuma, Tekton, or a person with a
// sleep. [Choose] picks a mechanism for each edge, with the reasons. [Write]
// puts the chosen plan into the pod, and [Without] takes an ordering out.
//
// What is written is read again before it is returned, so that a pod that does
// have the requested order never leaves this package.
//
// Where to read:
//
//	read.go         a pod as containers, and the recognisers over it
//	carrier.go      one container: where it stands in the pod, when it restarts, by what it is healthy
//	native.go       sidecars: restartable init containers
//	hold.go         a proxy first in the list, with a postStart that blocks
//	init.go         plain init containers
//	gate.go         wrapped commands: ours, Tekton's, scuttle, kubexit, linkerd-await
//	rootstage.go    a proxy that brings the gates by itself
//	gatekeep.go     what a gate takes over from the kubelet, and gives back
//	workaround.go   health loops, sleeps and hooks that people write
//	known.go        proxies and programs by name, as data
//	check.go        what the API server would refuse
//	excluded.go     the pods that injection leaves as they are
//	annotation.go   outrider.dev/depends-on
//	choose.go       which mechanism, and why
//	option.go       what each mechanism would do in this pod; present.go: what is there already
//	startable.go    the pod as it will be written, and whether it can start
//	costs.go        what each was measured to cost
//	write.go        a plan into a pod
//	without.go      an ordering out of a pod
//
// Nothing here changes the pod that it is given, reads a clock or does I/O.
package podspec
