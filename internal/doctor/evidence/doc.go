// Package evidence collects what is known of a pod that ran: facts, each with its source, its time
// and the error of that time. It draws no conclusion: that is what a diagnosis does with them.
//
// Two ways lead to a [Set] of [Pod]s. [Read] takes files, folders and archives of any of the usual
// layouts: what kubectl cluster-info dump, OpenShift's must-gather and outrider bug-report write, or
// a folder made by hand. [Live] reads a cluster. Both fill a bundle (bundle.go), which gives each
// event, log and owner to its pod. What is missing is in [Pod.Missing], with the reason; what was
// given and is of no use is in [Set.Unused]; facts that contradict each other are in [Pod.Notes].
// None of these stops anything.
//
// # Times
//
// A [Time] is an instant with its error: the kubelet writes whole seconds, a log what its layout
// has. [Time.Compare] says before, after, or that it cannot tell. Times of different clocks cannot be
// compared: a container's status and its log are of the node's clock, the creation of an object is
// of the API server's. [Skew] bounds how far the two are from each other, and [Skew.Place] takes an
// instant from the one to the other. The lines of a log without a zone are of a clock of their own
// until the zone is found: from the runtime's stamps before the lines, or as the only one for which
// the log lies in the run of its container ([Zone]). If several fit, or none, it stays unknown.
//
// # Logs
//
// A [Log] is streamed: [Log.Lines] yields one line after the other, and [Log.Scan] passes over it
// once for any number of patterns and keeps a bounded number of hits with the lines around them.
// Memory does not grow with the log: the rest of a very long line is passed over, and noted. The
// layouts of times are those of internal/doctor/evidence/timestamp. The bytes are those of the log; [Show]
// makes them harmless and masks secrets, and is to be applied wherever a line is shown.
//
// Where to read:
//
//	time.go     instants with errors, clocks
//	pod.go      the facts of one pod
//	status.go   from its status: runs of containers; what contradicts itself
//	log.go      lines; scan.go passes over a log
//	place.go    zones of logs, skew of clocks
//	bundle.go   what belongs to which pod; objects.go decodes objects
//	read.go     files and folders; unpack.go archives; names.go their layouts
//	live.go     a cluster
package evidence
