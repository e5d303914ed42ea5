// Package kube is outriderd's client of the Kubernetes API server. It watches the objects that define
// the mesh and the labels of namespaces, reviews tokens, and writes, among others, the roots in every
// namespace and the certificates in the webhook's configuration.
//
// It keeps only those fields of objects that it needs. While the API server does not answer, the last
// known state stays in use; see [Cluster.Trouble].
//
// No other package imports client-go.
package kube
