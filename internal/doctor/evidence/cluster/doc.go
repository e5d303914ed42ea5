// Package cluster reads from an API server and from kubelets what there is about pods: the pods, their events, owners, logs
// and journals. Package gather assigns it to the pods.
package cluster
