package status

import (
	"net/http"
	"runtime"
)

// goroutines serves the stacks of all goroutines. runtime/pprof is not used: it would make the agent
// 0.1 MB larger, and make the runtime sample memory allocations in every pod.
func goroutines(w http.ResponseWriter, _ *http.Request) {
	for size := 64 << 10; ; size *= 2 {
		stacks := make([]byte, size)
		if n := runtime.Stack(stacks, true); n < size || size >= mostStacks {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Write(stacks[:n])
			return
		}
	}
}

const mostStacks = 4 << 20
