package proxy

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/core/agent/sockets"
	"outrider.dev/internal/core/agent/supervise"
)

// That all applications have ended does not prove that Envoy has passed on what they wrote: it
// has bytes of theirs for as long as a receiver is slower than they were. Without a proxy the
// kernel has them, and goes on sending when the process is gone.

const (
	flushPoll  = 10 * time.Millisecond // between two looks at what is pending, for which there is no event
	flushStill = 2 * time.Second       // without progress: the receiver does not read
)

// awaitFlushed returns when Envoy has passed on what it has received, or when nothing of it has
// moved for flushStill. It returns how many bytes are left.
func (a *agent) awaitFlushed(ctx context.Context) (left uint64) {
	for moved := time.Now(); ctx.Err() == nil && a.super.PID() != 0 && time.Since(moved) < flushStill; {
		begin := time.Now()
		n, err := a.pending(ctx)
		if err == nil && n == 0 {
			return 0
		}
		if n != left {
			left, moved = n, begin
		}
		time.Sleep(max(flushPoll, 4*time.Since(begin))) // many sockets take long to list
	}
	return left
}

// pending counts the bytes that Envoy has received and not passed on. They are in the queues of
// its sockets, or wait for a window of HTTP/2. Its other buffers have bytes only while the queue
// of a socket is full, or while a worker is awake.
func (a *agent) pending(ctx context.Context) (uint64, error) {
	queued := func() (uint64, error) { return sockets.Pending(uint32(os.Getuid()), a.apart) }
	n, err := queued()
	switch {
	case err != nil || n > 0:
		return n, err
	case a.workersAwake():
		return 1, nil // or more
	}
	if n, err = queued(); err != nil || n > 0 {
		return n, err
	}
	stats, err := a.admin.Stats(ctx, `^(http2|cluster\.(in|out)bound.*)\.pending_send_bytes$`)
	for _, waiting := range stats { // any order: a sum
		n += waiting
	}
	return n, err
}

// apart reports whether a socket carries nothing of an application: it is one of the agent's or
// Envoy's own ports, or a connection to the control plane.
func (a *agent) apart(s sockets.Socket) bool {
	p := a.config.Ports
	own := []uint16{p.Admin, p.Status, p.Readiness, p.Prometheus}
	return slices.Contains(own, s.Local.Port()) || slices.Contains(own, s.Remote.Port()) ||
		slices.Contains(a.servers(), s.Remote.Port())
}

// servers are the ports of the control plane.
func (a *agent) servers() (out []uint16) {
	for _, address := range []string{a.config.ControlPlane.Address, a.config.ControlPlane.CA} {
		_, port, _ := net.SplitHostPort(address)
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			out = append(out, uint16(n))
		}
	}
	return out
}

// workersAwake reports whether a thread of Envoy that serves connections runs. Where /proc does
// not show it, none does.
func (a *agent) workersAwake() bool {
	all, _ := supervise.Threads(a.super.PID())
	return slices.ContainsFunc(all, func(t supervise.Thread) bool { return strings.HasPrefix(t.Name, "wrk:") && t.Awake() })
}
