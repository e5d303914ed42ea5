// Package mechanism chooses how each edge of a pod's start-up is kept: by a gate, a native sidecar, a hold,
// or by what the pod has already.
//
// [Choose] picks the best mechanism that fits the pod as it would be written, with the reasons, and what
// was refused in its favour. All choices of a pod together leave it able to start: a mechanism that would
// make containers wait for each other is taken back. [Advise] compares the mechanisms for one edge, and
// [Stronger] says what would keep more.
//
// Where to read:
//
//	choose.go     which mechanism, and why
//	option.go     the effect of each mechanism in this pod
//	present.go    orderings that the pod has already
//	startable.go  the pod as it will be written, and whether it can start
//	stronger.go   what would keep an edge at every start
//	advise.go     the mechanisms side by side
//
// The package changes no pod: podspec.Write does, by the edges of the choices.
package mechanism
