// Package mesh tests a complete mesh: real Envoys in network namespaces that stand for pods, traffic captured as
// in a cluster, and resources that the control plane's xDS server serves.
package mesh
