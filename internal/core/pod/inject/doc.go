// Package inject decides what a pod gets: the proxy, the capture, an order of its
// containers, or nothing and why.
//
// [Pod] is a pure function from a pod, its namespace and options to a pod, a reason and
// warnings. The given pod is not changed. It has four steps; each is a function that returns
// a value and changes nothing that it reads:
//
//	decide    is the pod injected, and which mesh has its proxy?  decide.go
//	settings  annotations, namespace and mesh, checked             effective.go, package settings
//	order     which mechanism keeps each edge of the start?        package order
//	write     the pod with settings and plan in it                 write.go
//
// Injecting an injected pod, by the same options or others, gives what injecting the original
// would: [Stripped] first undoes what an earlier injection did, with the help of package changes.
//
// Read by settings:
//
//	security.go  pod security levels, OpenShift's ranges, security contexts
//	volumes.go   volumes of the proxy
//	metrics.go   merged metrics
//	ports.go     ports of the mesh
//
// Written by write:
//
//	proxy.go          the container outrider-proxy; environment.go its variables
//	initcontainer.go  the container outrider-init; rootstage.go the proxy in its place
//	probes.go         probes of the app that the agent makes
package inject
