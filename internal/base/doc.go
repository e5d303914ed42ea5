// Package base is the common ground floor: every wing uses its packages, and none of them decides about a
// mesh, a pod or a node.
//
// Its doors:
//   - atomicfile: files are replaced by rename
//   - contract: the names on which programs agree (ports, paths, containers, annotations, labels)
//   - latest: a value that is replaced while others wait for the next one
//   - wire: the protocols between agent and control plane, without gRPC's library
//   - telemetry: settings of access logs, traces and request metrics
//   - manifest: Kubernetes objects in YAML, strictly decoded and edited with their comments
//   - finding: a finding with severity, evidence and fix, as lint, check and diagnose print it
//   - mask: secrets are taken out of what is shown or handed on
//   - cli: exit statuses, errors with hints, progress, flags that commands share
//
// It imports no other wing. atomicfile, contract, wire and telemetry import only the standard library, since the
// agent runs in every pod.
package base
