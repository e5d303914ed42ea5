// Package diagnose says what happened to a pod, why, and what ends it: from the evidence alone
// (package evidence), also of pods that others injected.
//
// A subject is the pod with its roles: which container is the proxy, of which mesh, what waits for
// it, and which connections its capture takes. Each rule looks for one cause in it and returns
// findings, each with the evidence for it, what speaks against it and what would disprove it. The
// surest one is the verdict. Where two causes remain, or where the order of two instants lies within
// the error of their clocks, the verdict is [Undecided], with the suspects and the command that would
// decide.
//
// A text in a log is a symptom and never a cause. What makes a refused call a start-up race is not
// its wording but its way: a connection that the capture takes goes to the proxy's own port, and the
// kernel refuses it there only while no proxy listens. What a far side refuses comes back through the
// proxy, as a reset or as a response of status 503.
//
// Where to read:
//
//	report.go    what is returned
//	subject.go   roles, order; package capturescope: what the capture takes
//	symptom.go   failed calls in logs; serving.go: when the proxy served
//	rules.go     the rules in their order; race.go, order.go, status.go, calls.go: the rules
//	remedy.go    what ends it; replay.go: what the kubelet would have done with it
//	timeline.go  what happened, in order; track.go: all of it, for pictures
//	start.go     how long the pod took to get ready, and in which phases
//	catalogue.go the codes
package diagnose
