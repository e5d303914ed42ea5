package status

import (
	"fmt"
	"maps"
	"net/http"
	"runtime/pprof"
	"slices"
	"strconv"
	"time"
)

// debug is Go's profiles and what the options add.
func (s *Server) debug() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/{name}", profile)
	names := slices.Collect(maps.Keys(s.o.Debug))
	for name, h := range s.o.Debug {
		mux.Handle("GET /debug/"+name, h)
	}
	for _, p := range pprof.Profiles() {
		names = append(names, "pprof/"+p.Name())
	}
	names = append(names, "pprof/profile")
	slices.Sort(names)
	mux.HandleFunc("GET /debug/", func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusOK
		if r.URL.Path != "/debug/" && r.URL.Path != "/debug/pprof/" {
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

// profile serves what "go tool pprof" fetches: /debug/pprof/heap, goroutine, and so on, and
// profile?seconds=30 for the processor. net/http/pprof has more, and would make the agent
// half a megabyte larger.
func profile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if name == "profile" {
		processor(w, r)
		return
	}
	p := pprof.Lookup(name)
	if p == nil {
		http.Error(w, "no such profile; /debug/ lists them", http.StatusNotFound)
		return
	}
	debug, _ := strconv.Atoi(r.URL.Query().Get("debug"))
	w.Header().Set("Content-Type", "application/octet-stream")
	if debug > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	p.WriteTo(w, debug)
}

// longestProfile bounds ?seconds=.
const longestProfile = 5 * time.Minute

func processor(w http.ResponseWriter, r *http.Request) {
	length := 30 * time.Second
	if n, err := strconv.ParseUint(r.URL.Query().Get("seconds"), 10, 16); err == nil {
		length = min(time.Duration(n)*time.Second, longestProfile)
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Time{}) // its limit would end the request
	control.SetWriteDeadline(time.Now().Add(length + answerLimit))
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := pprof.StartCPUProfile(w); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable) // another one is being made
		return
	}
	defer pprof.StopCPUProfile()
	select {
	case <-time.After(length):
	case <-r.Context().Done():
	}
}
