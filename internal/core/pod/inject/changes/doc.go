// Package changes records what injection added to a pod and what it replaced, in the annotations
// outrider.dev/status and outrider.dev/overrides, and undoes it.
package changes
