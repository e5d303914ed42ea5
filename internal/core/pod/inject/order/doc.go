// Package order plans how an injected pod starts: the position of the proxy, which container waits for
// which, and by which mechanism. It reads the settings of the pod's author, of the mesh and of Istio's
// switches, and refuses an order that no mechanism can keep or that would never end.
package order
