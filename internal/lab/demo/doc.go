// Package demo shows a pod's start with real parts, on one machine: a
// control plane with some thousand services, a real Envoy below the agent, pods as real
// processes by the kubelet's rules, and an application that dies when it is refused.
package demo
