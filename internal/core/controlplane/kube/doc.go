// Package kube is outriderd's client of the Kubernetes API server. It watches the objects of
// the mesh and the labels of namespaces, reviews tokens, and updates two things: the roots in
// every namespace, and the certificates of the webhook's configuration.
//
// It keeps only the fields that are needed of an object. While the API server does not
// answer, the last known state stays in use; see [Cluster.Trouble].
//
// It is the only package that imports client-go.
package kube
