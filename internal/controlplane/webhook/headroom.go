package webhook

import (
	"cmp"
	"os"
)

// Headroom is memory for a process that answers reviews to hold while it runs. It is never
// touched, so the system gives none for it, but the collector counts it as heap.
//
// A review makes some 100 kB of garbage beside a heap of a few megabytes, and the
// collector, which waits until the heap has doubled, would come after every hundredth. So
// it waits for 32 MiB more. A higher percentage (GOGC) would do that too, and would take a
// multiple of the heap of a large mesh. It is nil where GOGC or GOMEMLIMIT say what is
// wanted.
func Headroom() []byte {
	if cmp.Or(os.Getenv("GOGC"), os.Getenv("GOMEMLIMIT")) != "" {
		return nil
	}
	return make([]byte, headroom)
}

const headroom = 32 << 20 // bytes
