// Package diagnose says what happened to a pod, why, and what fixes it. It uses nothing but the pod's
// evidence (package evidence). It also diagnoses pods that were injected by other meshes.
//
// A subject is the pod with the roles of its containers (the proxy, its mesh, the containers that wait
// for the proxy) and the connections that are captured. Each rule looks for one cause. It returns
// findings, each with its evidence, the evidence against it, and an observation that would disprove it.
// The most certain finding is the verdict. The verdict is [Undecided] if two causes remain, or if the
// clocks are not exact enough to order two events. The report then has the suspects and a command whose
// result would decide.
//
// A line of a log is a symptom and never a cause. For a refused call, the words of the line do not
// decide whether the cause is a start-up race; the route of the call does. A captured connection goes to
// the proxy's port, and the kernel refuses it there only while no proxy listens. If the destination
// refuses a captured call, the application sees a reset or a response with status 503 instead.
//
// Where to read:
//
//	report.go    the result
//	subject.go   roles and order; package capturescope: the connections that are captured
//	symptom.go   failed calls in logs; serving.go: when the proxy served
//	rules.go     the rules in their order; race.go, order.go, status.go, calls.go: the rules
//	remedy.go    remedies; replay.go: what the kubelet would have done with the remedy
//	timeline.go  events of a report, in order; track.go: the whole history, for pictures
//	start.go     the time until the pod was ready, and its phases
//	catalogue.go the codes
package diagnose
