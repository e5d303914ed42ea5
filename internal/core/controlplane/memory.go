package controlplane

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// A trimmer gives memory back to the system after many proxies have connected: each first
// configuration takes several times what is kept of it, and the collector on its own would keep
// that for the next time.
type trimmer struct {
	after time.Duration // since the last one connected
	least int           // proxies; fewer are not worth a collection
	free  func()        // 0.1 s of a processor for 300 MB

	mu    sync.Mutex
	n     int // proxies since the last time
	timer *time.Timer
}

func newTrimmer() *trimmer { return &trimmer{after: time.Second, least: 100, free: free} }

// connected notes a proxy that has its first configuration.
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

// free collects more than once: a collection halves a stack that has become too large, and what a
// pool holds goes with the second one.
func free() {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
}
