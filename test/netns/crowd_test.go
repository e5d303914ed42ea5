package netns

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/test/process"
)

// A crowd makes new connections as fast as it can.
type crowd struct {
	wg              sync.WaitGroup
	stop            atomic.Bool
	made, cut       atomic.Int64 // cut: broken after connecting
	refused, passed atomic.Int64
	first           atomic.Value
}

func (c *crowd) gather(top *topology, size int) {
	for i := range size {
		w := ways[i%len(ways)]
		c.wg.Go(func() { w.from(top).As(w.uid, w.uid, func() { c.callOften(w.dst) }) })
	}
}

func (c *crowd) callOften(dst string) {
	for !c.stop.Load() {
		conn, err := net.DialTimeout("tcp", dst, enough)
		c.made.Add(1)
		switch {
		case errors.Is(err, unix.ECONNRESET): // it was in the queue of the process that was killed
			c.cut.Add(1)
			continue
		case err != nil:
			c.refused.Add(1)
			c.first.CompareAndSwap(nil, dst+": "+err.Error())
			continue
		}
		if _, err := firstLine(conn); err == nil {
			c.passed.Add(1)
		} else {
			c.cut.Add(1)
			c.first.CompareAndSwap(nil, dst+": "+err.Error())
		}
		conn.(*net.TCPConn).SetLinger(0) // ports are few
		conn.Close()
	}
}

func (c *crowd) end() {
	c.stop.Store(true)
	c.wg.Wait()
}

// passes waits until n more were served.
func (c *crowd) passes(t testing.TB, n int64) {
	t.Helper()
	want := n + c.passed.Load()
	process.Eventually(t, fmt.Sprintf("%d more connections served", n), func() bool { return c.passed.Load() >= want })
}

func (c *crowd) String() string {
	return fmt.Sprintf("%d connections, %d served, %d refused, %d cut", c.made.Load(), c.passed.Load(), c.refused.Load(), c.cut.Load())
}
