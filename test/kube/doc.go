// Package kube tests internal/core/controlplane/kube and outriderd on a real API server, with no
// permissions but those of the chart's roles.
package kube
