// Package request reads what the annotations and labels of a pod request: the edges of its start, a mechanism for
// them, and whether the pod is injected at all.
//
// [Edges] reads edges, and [FormatEdges] writes them in a form that Edges reads as the same edges. An invalid
// annotation is reported as an [Error] that contains its name, the container, and what would be valid. [Excluded]
// returns the reason why injection does not change a pod.
//
// The package checks only the syntax. It does not check whether the pod has the named containers.
package request
