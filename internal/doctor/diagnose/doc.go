// Package diagnose says what happened to a pod, why, and what fixes it, from the evidence alone
// (package evidence). It also diagnoses pods that others injected.
//
// A subject is the pod with the roles of its containers: which is the proxy, of which mesh, which wait
// for it, and which connections its capture takes. Each rule looks for one cause and returns findings,
// each with its evidence, what speaks against it and what would disprove it. The surest finding is the
// verdict. Where two causes remain, or where the order of two instants lies within the error of their
// clocks, the verdict is [Undecided], with the suspects and the command that would decide.
//
// A text in a log is a symptom and never a cause. A refused call is a start-up race because of its
// route, not because of its wording: a connection that the capture takes goes to the proxy's own port,
// where the kernel refuses it only while no proxy listens. If the far side refuses a captured call,
// the proxy passes that on as a reset or as a response with status 503.
//
// Where to read:
//
//	report.go    what is returned
//	subject.go   roles and order; package capturescope: what the capture takes
//	symptom.go   failed calls in logs; serving.go: when the proxy served
//	rules.go     the rules in their order; race.go, order.go, status.go, calls.go: the rules
//	remedy.go    what fixes it; replay.go: what the kubelet would have done with the fix
//	timeline.go  what happened, in order; track.go: the whole history, for pictures
//	start.go     how long the pod took to get ready, and in which phases
//	catalogue.go the codes
package diagnose
