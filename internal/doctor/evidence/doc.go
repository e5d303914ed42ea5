// Package evidence collects the known facts about a pod that ran, each with its source, its time and
// the error of that time. It draws no conclusion: that is the task of a diagnosis.
//
// A [Set] of [Pod]s comes from one of two sources. [Read] takes files, folders and archives in any of
// the usual layouts: the output of kubectl cluster-info dump, OpenShift's must-gather and outrider
// bug-report, or a folder made by hand. [Live] reads a cluster. Both fill a bundle (bundle.go), which
// assigns each event, log and owner to its pod. [Pod.Missing] lists missing evidence with the reason,
// [Set.Unused] lists input that is of no use, and [Pod.Notes] lists facts that contradict each other.
// None of these stops the collection.
//
// # Times
//
// A [Time] is an instant with its error: the kubelet writes whole seconds, and a log has the resolution
// of its layout. [Time.Compare] answers before, after, or that it cannot tell. Times of different
// clocks cannot be compared: a container's status and its log use the node's clock, the creation of an
// object uses the API server's. [Skew] bounds the difference of the two, and [Skew.Place] converts an
// instant from the API server's clock to the node's. Log lines without a zone have a clock of their own
// until the zone is found: from the runtime's stamps before the lines, or as the only zone in which the
// log lies within the run of its container ([Zone]). If several zones fit, or none, it stays unknown.
//
// # Logs
//
// A [Log] is streamed: [Log.Lines] yields one line after another. [Log.Scan] reads the log once for
// any number of patterns, and keeps a bounded number of hits with the lines around them. Memory does
// not grow with the log: the rest of a very long line is skipped, and the line is marked. Package
// internal/doctor/evidence/timestamp has the layouts of times. Lines contain the original bytes of
// the log; [Show] makes them harmless and masks secrets, and must be applied wherever a line is shown.
//
// Where to read:
//
//	time.go     instants with errors, clocks
//	pod.go      the facts of one pod
//	status.go   facts from its status: runs of containers; contradictions
//	log.go      lines; scan.go scans a log
//	place.go    zones of logs, skew of clocks
//	bundle.go   assigns facts to pods; objects.go decodes objects
//	read.go     files and folders, archives by package archive; names.go their layouts
//	live.go     a cluster
package evidence
