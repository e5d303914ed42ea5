// Package podfile finds the pods in manifest files, YAML or JSON. These are pods and pod templates of workloads,
// also inside lists and in kinds that are not part of Kubernetes ([Parse]). [Rewrite] replaces them. A document
// without a changed pod keeps its exact bytes.
//
// An [InputError] reports invalid input, with file, document, line and field. The package does no I/O.
package podfile
