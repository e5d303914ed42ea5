// Package podfile finds the pods in files of manifests, YAML or JSON. These are pods themselves and the
// templates of workloads, also in lists and in kinds that are not Kubernetes' own ([Parse]). [Rewrite]
// replaces them, and every document without a changed pod keeps its exact bytes.
//
// An [InputError] reports input that cannot be used, with file, document, line and field. manifest.go reads,
// rewrite.go replaces. The package does no I/O.
package podfile
