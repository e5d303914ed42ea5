// Package kube shows internal/kube and outriderd on a real API server, with the roles of
// deploy/outriderd.yaml and no others.
package kube
