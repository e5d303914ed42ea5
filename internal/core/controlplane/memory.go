package controlplane

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// A trimmer returns memory to the system after many proxies have connected. The first configuration of a
// proxy allocates several times the memory that remains in use, and the garbage collector would not
// return the rest.
type trimmer struct {
	after time.Duration // memory is returned this long after the last proxy has connected
	least int           // minimum number of proxies; fewer are not worth a collection
	free  func()        // runs the collector; takes 0.1 s of a processor for 300 MB

	mu    sync.Mutex
	n     int // number of proxies since the last collection
	timer *time.Timer
}

func newTrimmer() *trimmer { return &trimmer{after: time.Second, least: 100, free: free} }

// connected counts a proxy that has received its first configuration.
func (t *trimmer) connected() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.n++; {
	case t.n < t.least:
	case t.timer == nil:
		t.timer = time.AfterFunc(t.after, t.trim)
	default:
		t.timer.Reset(t.after)
	}
}

func (t *trimmer) trim() {
	t.mu.Lock()
	t.n = 0
	t.mu.Unlock()
	t.free()
}

// free collects twice: each collection shrinks an oversized stack at most to half, and only the second one
// releases pooled objects.
func free() {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
}
