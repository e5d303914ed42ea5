// Package order plans how an injected pod starts: the position of the proxy, the containers that wait for one
// another, and the mechanism for each wait. It reads the settings of the pod's author, of the mesh and of Istio's
// switches. It refuses an order that no mechanism can keep, or with which the start would never end.
package order
