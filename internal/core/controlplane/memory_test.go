package controlplane

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// If many proxies connect, memory is returned once, after the last of them. If few connect, it is not
// returned.
func TestMemoryIsGivenBackAfterManyConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed atomic.Int32
		c := newTrimmer()
		c.free = func() { freed.Add(1) }
		connect := func(n int) {
			for range n {
				c.connected()
				time.Sleep(c.after / 2)
			}
			synctest.Wait()
		}
		if connect(c.least - 1); freed.Load() != 0 {
			t.Error("it is given back for a few")
		}
		if connect(3 * c.least); freed.Load() != 0 {
			t.Error("it is given back while proxies connect")
		}
		for range 2 {
			if time.Sleep(10 * c.after); freed.Load() != 1 {
				t.Errorf("it is given back %d times, want once", freed.Load())
			}
			connect(1)
		}
		connect(c.least)
		if time.Sleep(c.after); freed.Load() != 2 {
			t.Errorf("it is given back %d times, want once for each storm", freed.Load())
		}
	})
}
