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

// When all applications have ended, Envoy may still hold bytes that they wrote, because a receiver
// is slower than they were. Without a proxy the kernel would hold these bytes, and go on sending
// them after the application's end. So the agent waits until Envoy has sent them.

const (
	flushPoll  = 10 * time.Millisecond // pause between two counts of pending bytes, for which there is no event
	flushStill = 2 * time.Second       // after this time without progress, the receiver is assumed not to read
)

// awaitFlushed returns when Envoy has passed on all bytes that it has received, or when their number has not
// changed for flushStill. It returns the number of bytes that are left.
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
// its sockets, or wait for an HTTP/2 flow-control window. Envoy's other buffers hold bytes only
// while the queue of a socket is full, or while a worker is awake.
func (a *agent) pending(ctx context.Context) (uint64, error) {
	queued := func() (uint64, error) { return sockets.Pending(uint32(os.Getuid()), a.apart) }
	n, err := queued()
	switch {
	case err != nil || n > 0:
		return n, err
	case a.workersAwake():
		return 1, nil // an unknown number, at least 1
	}
	if n, err = queued(); err != nil || n > 0 {
		return n, err
	}
	stats, err := a.admin.Stats(ctx, `^(http2|cluster\.(in|out)bound.*)\.pending_send_bytes$`)
	for _, waiting := range stats { // the order does not matter for a sum
		n += waiting
	}
	return n, err
}

// apart reports whether a socket carries no bytes of an application: it uses one of the agent's or
// Envoy's own ports, or is connected to the control plane.
func (a *agent) apart(s sockets.Socket) bool {
	p := a.config.Ports
	own := []uint16{p.Admin, p.Status, p.Readiness, p.Prometheus}
	return slices.Contains(own, s.Local.Port()) || slices.Contains(own, s.Remote.Port()) ||
		slices.Contains(a.servers(), s.Remote.Port())
}

// servers returns the ports of the control plane.
func (a *agent) servers() (out []uint16) {
	for _, address := range []string{a.config.ControlPlane.Address, a.config.ControlPlane.CA} {
		_, port, _ := net.SplitHostPort(address)
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			out = append(out, uint16(n))
		}
	}
	return out
}

// workersAwake reports whether one of Envoy's worker threads, which serve the connections, is
// awake. It returns false if /proc does not show the threads.
func (a *agent) workersAwake() bool {
	all, _ := supervise.Threads(a.super.PID())
	return slices.ContainsFunc(all, func(t supervise.Thread) bool { return strings.HasPrefix(t.Name, "wrk:") && t.Awake() })
}
