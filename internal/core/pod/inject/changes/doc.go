// Package changes keeps what injection added to a pod and what of its author's it replaced, in the annotations
// outrider.dev/status and outrider.dev/overrides, and undoes it.
package changes
