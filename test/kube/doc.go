// Package kube shows internal/core/controlplane/kube and outriderd on a real API server, with the roles of
// the chart and no others.
package kube
