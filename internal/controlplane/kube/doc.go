// Package kube is what outriderd does with a Kubernetes API server: it takes the mesh from
// there, asks whose a token is, reads the labels of namespaces, and keeps two things
// current: the roots in every namespace, and the certificates of the webhook's
// configuration.
//
// What is needed of an object is kept, not the object. Where the API server does not
// answer, what was known before goes on to hold; see [Cluster.Trouble].
//
// It is the only package that imports client-go.
package kube
