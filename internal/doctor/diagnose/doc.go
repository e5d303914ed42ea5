// Package diagnose says what happened to a pod, why, and what fixes it. It uses nothing but the pod's
// evidence (package evidence). It also diagnoses pods that were injected by other meshes.
//
// A diagnosis goes through five packages: the evidence (package evidence); its meaning, as the roles of
// containers and when the proxy listened (facts); the failed calls in logs (calls); where each call went and
// what it led to (chain); and here the findings. Each rule looks for one cause. It returns findings, each
// with its evidence, the evidence against it, and an observation that would disprove it.
// The most certain finding is the verdict. The verdict is [result.Undecided] if two causes remain, or if the
// clocks are not exact enough to order two events. The report then has the suspects and a command whose
// result would decide.
//
// A failed call in a log is never a cause. For a refused call, the words of the line do not
// decide whether the cause is a start-up race; the route of the call does. A captured connection goes to
// the proxy's port, and the kernel refuses it there only while no proxy listens. If the destination
// refuses a captured call, the application sees a reset or a response with status 503 instead.
//
// Where to read:
//
//	rules.go        the rules in their order
//	notstarted.go   causes before a container runs; package nopod: what there is no object of a pod for; package node: a
//	                node that does not answer; package phases: a start that took long
//	race.go, order.go, shutdown.go, proxy.go   causes at the proxy
//	early.go, ambient.go   other failures before the proxy, or ztunnel of the node, is ready
//	destination.go  causes at the destination of a call
//	ends.go         causes in a container itself; probe.go: what its probes got; hook.go: its hooks
//	package beside  what is false, or of no use, beside another finding
//	remedy.go       remedies; package remedies: what a mesh has for it, and in which object it is set; package replay: what the kubelet
//	                would have done with the remedy
//	siblingremedy.go   remedies for calls to the own pod
//
// Package result has the form of a diagnosis, kinds the codes, history the order of events and, for pictures, all that is known of each container.
// Package capturescope predicts which connections are captured, page writes reports, and follow watches a
// roll-out.
package diagnose
