// Package demo shows a pod's start with real parts, on one machine: a control plane with some thousand services,
// a real Envoy that the agent runs, pods whose containers are processes of this machine, started by the kubelet's
// rules, and an application that exits if its first connection is refused.
package demo
