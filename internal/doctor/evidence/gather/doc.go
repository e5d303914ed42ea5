// Package gather reads the evidence about pods, and gives each part of it to its pod.
//
// [Read] reads files, folders and archives in any of the usual layouts: the output of kubectl cluster-info dump,
// OpenShift's must-gather and outrider bug-report, or a folder made by hand, also what kubectl describe prints and
// objects that a person shortened, of which [evidence.Pod.Omitted] says what is not there. [Live] reads a cluster.
// Both fill a bundle, which assigns each event, log and owner to its pod. What cannot be read stops nothing:
// [evidence.Pod.Missing] lists missing evidence with the reason, and [evidence.Set.Unused] input that is not evidence of
// any pod.
//
// Where to read:
//
//	bundle.go   assigns facts to pods; objects.go decodes objects
//	read.go     files and folders, archives by package archive; names.go their layouts
//	live.go     a cluster; without.go its workloads: owners, revisions, and those that cannot create pods
//	partial.go  shortened objects; texts.go what kubectl prints for people, read by package described
//	pasted.go   texts of people, read by package pasted; used.go the files of which nothing is used
//	creator.go  workloads that cannot create pods; config.go ConfigMaps and Secrets
package gather
