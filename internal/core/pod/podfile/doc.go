// Package podfile finds the pods in files of manifests, YAML or JSON: pods themselves, and the templates
// of workloads, also in lists and of kinds that are not Kubernetes' own ([Parse]). [Rewrite] replaces them
// and leaves every document without a changed pod byte for byte as it was.
//
// Input that cannot be used is an [InputError], with file, document, line and field. manifest.go reads,
// rewrite.go replaces. Nothing here does I/O.
package podfile
