// Package inject adds to a pod what it needs in the mesh: the proxy, the capture of connections, and the order of
// its containers. It returns the reason for each decision, also if it adds nothing.
//
// [Pod] is a pure function from a pod, its namespace and options to a pod, a reason and warnings. It does
// not change the given pod. It has four steps, each a function that returns a value and does not change its
// arguments:
//
//	decide    is the pod injected, and which mesh has its proxy?  decide.go
//	settings  annotations, namespace and mesh, checked             effective.go, package settings
//	order     which mechanism keeps each edge of the start?        package order
//	write     the pod with settings and plan in it                 write.go
//
// Injecting an injected pod, with the same options or others, gives the same result as injecting the
// original: [Stripped] first undoes the earlier injection, with the help of package changes.
//
// These files belong to the step settings:
//
//	security.go  pod security levels, security contexts
//	volumes.go   volumes of the proxy
//	metrics.go   merged metrics
//	ports.go     ports of the mesh
//
// These files belong to the step write:
//
//	proxy.go          the container outrider-proxy; environment.go its variables
//	initcontainer.go  the container outrider-init; rootstage.go the proxy in its place
//	probes.go         probes of the app that the agent makes
package inject
