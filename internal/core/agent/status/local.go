package status

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
)

// debug serves /debug/goroutines, the handlers in Options.Debug, and a list of both.
func (s *Server) debug() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/goroutines", goroutines)
	names := append(slices.Collect(maps.Keys(s.o.Debug)), "goroutines")
	for name, h := range s.o.Debug {
		mux.Handle("GET /debug/"+name, h)
	}
	slices.Sort(names)
	mux.HandleFunc("GET /debug/", func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusOK
		if r.URL.Path != "/debug/" {
			code = http.StatusNotFound
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		for _, name := range names {
			fmt.Fprintf(w, "/debug/%s\n", name)
		}
	})
	return mux
}

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
