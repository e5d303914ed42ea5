// Package diagnoser watches the pods that Outrider injected, and diagnoses those that restart or are
// slow to get ready: it writes an Event on the pod, and counts by cause. The conclusions are those of
// package diagnose, from what package evidence reads of the cluster.
//
// It is made for a control plane that has other work: it keeps some hundred bytes of each pod, reads
// nothing of a pod that is well, diagnoses few pods at a time and a second, and reads a bounded part
// of their logs. Nothing is polled: restarts come by the watch, and slow starts by a timer.
//
// An Event stands for a cause in a container of a pod. A further restart by the same cause counts
// it up; the same restart is never written twice, by whichever replica: the Event has a name of its
// own and the number of restarts that it was written for.
//
// Where to read:
//
//	record.go    what is kept of a pod
//	diagnoser.go when a pod is diagnosed
//	event.go     what is written
package diagnoser
