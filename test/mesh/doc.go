// Package mesh tests a complete mesh: real Envoys in pods (network namespaces), captured as in a
// cluster, with the control plane's own server and resources.
package mesh
