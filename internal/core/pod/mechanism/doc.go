// Package mechanism chooses the mechanism that enforces each edge of a pod's start: a gate, a native sidecar, a
// hold, or something that the pod already has.
//
// [Choose] selects the best mechanism that can be used in the pod as it would be written. It returns the reasons,
// and the better mechanisms that cannot be used. The choices for a pod together do not prevent its start: a
// mechanism that would make containers wait for each other is not used. [Advise] compares the mechanisms for one
// edge. [Stronger] returns what would give more guarantees.
//
// Files:
//
//	choose.go     the mechanism for an edge, and the reasons
//	option.go     the effect of each mechanism in this pod
//	present.go    orderings that the pod has already
//	startable.go  the pod as it will be written, and whether it can start
//	stronger.go   changes after which an edge is kept at every start
//	advise.go     comparison of the mechanisms
//
// The package changes no pod. podspec.Write does that, by the edges of the choices.
package mechanism
