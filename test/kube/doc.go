// Package kube tests internal/core/controlplane/kube and outriderd with a real API server. Both have only the
// permissions of the chart's roles.
package kube
