// Package mesh has tests of a whole mesh: real Envoys in pods of network namespaces,
// captured as in a cluster, with the control plane's own server and resources.
package mesh
