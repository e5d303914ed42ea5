// Package diagnoser watches the pods that Outrider injected, and diagnoses those that restart or are
// slow to get ready. It writes the cause into an Event on the pod, and counts the causes. Package
// evidence reads the pod's evidence from the cluster, and package diagnose concludes from it.
//
// A diagnoser is a part of outriderd and must not slow down its other work. So it keeps a few hundred
// bytes for each pod, reads no logs of healthy pods, limits the number and rate of diagnoses, and reads
// a bounded part of the logs. It does not poll: the watch reports restarts, and a timer slow starts.
//
// There is one Event for each cause and container of a pod. A further restart for the same cause
// increases the Event's count. No restart is counted twice, even if another replica takes over: the
// Event's name is derived from the cause, and an annotation contains the number of restarts at the time
// of the last write.
//
// Where to read:
//
//	record.go    the facts that are kept of each pod
//	diagnoser.go the watch, the queue and the diagnoses
//	event.go     the Events
package diagnoser
