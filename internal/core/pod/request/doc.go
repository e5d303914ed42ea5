// Package request reads what the annotations and labels of a pod request: the edges of its start-up, a
// mechanism for them, and whether the pod takes part in injection at all.
//
// [Edges] reads the edges and [FormatEdges] writes them, so that what one has written the other reads as the
// same edges. An annotation that cannot be understood is an [Error] with its name, the container and what
// would be right. [Excluded] says why injection does not change a pod.
//
// The package checks words only: it does not look for the containers that are named.
package request
