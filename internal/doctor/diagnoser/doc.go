// Package diagnoser watches the pods that Outrider injected, and diagnoses those that restart or are
// slow to get ready: it writes an Event on the pod, and counts by cause. Package diagnose draws the
// conclusions, from what package evidence reads of the cluster.
//
// It is made for a control plane that has other work: it keeps a few hundred bytes of each pod, reads
// nothing of a healthy pod, limits the number and rate of diagnoses, and reads a bounded part of the
// logs. It polls nothing: the watch reports restarts, and a timer reports slow starts.
//
// An Event stands for a cause in a container of a pod. A further restart for the same cause increases
// its count. No restart is written twice, whichever replica writes: the Event's name is derived from
// the cause, and it contains the number of restarts that it was written for.
//
// Where to read:
//
//	record.go    what is kept of a pod
//	diagnoser.go when a pod is diagnosed
//	event.go     what is written
package diagnoser
