// Package order arranges how an injected pod starts: where the proxy stands, which container waits for
// which, and by which mechanism. It reads what the pod's author, the mesh and Istio's switches say of that,
// and refuses an order that no mechanism can keep or that would never end.
package order
