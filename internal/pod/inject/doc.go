// Package inject says what a pod gets: the proxy, the capture, the order of its
// containers, or nothing and why.
//
// [Pod] is pure: a pod, its namespace and options in; a pod, reasons and warnings out.
// The pod that it is given is never changed. Injecting an injected pod, by the same
// options or others, gives what injecting the original would: [Stripped] takes ours out
// first, and what was in the way of it is kept in the annotation outrider.dev/overrides.
//
// Annotations, labels, values and their meanings are Istio's where Istio has them
// (reference: istio-surface, section 1). Tables say all there are: annotations.go for
// those of a pod, values.go for those of the mesh. What a table knows and has no effect
// gets a warning, and so does what no table knows.
//
// Where to read:
//
//	inject.go        the way of a pod through all that follows
//	decide.go        who is injected, and by which rule
//	reason.go        the codes of a "no"
//	annotations.go   what a pod can say
//	values.go        what the mesh says: Istio's values; mesh.go: MeshConfig, ProxyConfig
//	settings.go      what holds for this pod, from both
//	strategy.go      which mechanism makes the app start after its proxy
//	image.go         commands that are not in the pod, but in its images
//	proxy.go         the container outrider-proxy; environment.go its variables
//	initcontainer.go the container outrider-init; rootstage.go the proxy in its place
//	probes.go        probes of the app that the agent makes; metrics.go merged metrics
//	security.go      pod security levels, OpenShift's ranges
//	beside.go        a pod of another mesh
//	overrides.go     what a user's own container of our name changes
//	strip.go         an injected pod without what is ours
//	patch.go         the difference as a JSON patch; shape.go: how a type is written
//	unread.go        on what of a pod nothing here depends
package inject
