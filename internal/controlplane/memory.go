package controlplane

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// A calm gives memory back to the system after many proxies have connected: each first
// configuration takes several times what is kept of it, and the collector on its own would keep
// that for the next time.
type calm struct {
	after time.Duration // since the last one connected
	least int           // proxies; fewer are not worth a collection
	free  func()        // 0.1 s of a processor for 300 MB

	mu    sync.Mutex
	n     int // proxies since the last time
	timer *time.Timer
}

func newCalm() *calm { return &calm{after: time.Second, least: 100, free: free} }

// connected notes a proxy that has its first configuration.
func (c *calm) connected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.n++; {
	case c.n < c.least:
	case c.timer == nil:
		c.timer = time.AfterFunc(c.after, c.come)
	default:
		c.timer.Reset(c.after)
	}
}

func (c *calm) come() {
	c.mu.Lock()
	c.n = 0
	c.mu.Unlock()
	c.free()
}

// free collects more than once: a collection halves a stack that has become too large, and what a
// pool holds goes with the second one.
func free() {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
}
