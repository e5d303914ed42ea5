// Package base contains the packages that all other wings use. They know nothing of a mesh, a pod or a node in
// particular.
//
// Its doors:
//   - atomicfile: replaces files by rename
//   - contract: the names on which programs agree (ports, paths, containers, annotations, labels)
//   - latest: a value for which goroutines can wait until it is replaced
//   - wire: the protocols between agent and control plane, without the gRPC library
//   - telemetry: settings of access logs, traces and request metrics
//   - manifest: decodes Kubernetes objects in YAML strictly, and edits them without losing comments
//   - finding: a finding with severity, evidence and fix, as lint, check and diagnose print it
//   - mask: removes secrets from texts and objects before they are shown
//   - cli: exit statuses, errors with hints, progress, and flags that commands share
//
// It imports no other wing. atomicfile, contract, wire and telemetry import only the standard library, since the
// agent runs in every pod.
package base
