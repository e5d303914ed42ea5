// Package evidence has the known facts about a pod that ran, each with its source, its time and the error of that time.
// It draws no conclusions; package diagnose does. Package gather reads them from files and clusters.
//
// A [Set] has [Pod]s. [Pod.Missing] lists missing evidence with the reason, [Pod.Omitted] what a person left out of the
// object, and [Pod.Notes] facts that contradict each other. [Set.Creators] are workloads that cannot create their pods.
//
// # Times
//
// A [Time] is an instant with its error. The error comes from the resolution: the kubelet writes whole
// seconds, and each log format has its own. [Time.Compare] returns Before, After or CannotTell. Times of
// different clocks cannot be compared: a container's status and its log use the node's clock, the
// creation of an object the API server's clock. [Skew] bounds the difference of these two clocks, and
// [Skew.Place] converts an instant from the API server's clock to the node's. If the times in a log name
// no time zone, the log has a clock of its own until its zone is found ([Zone]): from the times that the
// container runtime writes before the lines, or because in only one zone all lines lie within the run of
// the container. If several zones fit, or none, the zone stays unknown.
//
// # Logs
//
// A [Log] is streamed: [Log.Scan] reads the log once for any number of patterns, and keeps a bounded number of hits with
// the lines around them. It looks once at each byte ([Searcher]), and parses the times of the lines that it keeps only.
// The memory does not grow with the log; the rest of a very long line is skipped. Package
// internal/doctor/evidence/timestamp has the layouts of times. Lines contain the original bytes of the
// log. Before a line is shown, [Show] must be applied: it makes control characters harmless and masks
// secrets.
//
// Where to read:
//
//	time.go    instants with errors, clocks
//	pod.go     the facts of one pod
//	status.go  facts from its status: runs of containers; contradictions
//	log.go     lines; scan.go scans a log, search.go for several texts at once; ending.go what it says of the end of its program
//	place.go   zones of logs, skew of clocks
//	unused.go  what was not used, in a line for each reason
package evidence
