package proxy

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"outrider.dev/internal/core/agent/supervise"
)

// Envoy subscribes to a cluster for each address that the application has tried, and keeps it:
// one that the control plane removes it does not subscribe to again, and each later connection
// fails after a timeout (Envoy 1.40). So an Envoy that has grown is replaced by a new one, which
// subscribes to what is used then. That cuts nothing: it is done in a moment in which Envoy has
// no connection, and new ones wait in the standby meanwhile.
const (
	// growth is how much more memory than when it got ready an Envoy may have kept: from 68 MiB,
	// which it begins with, to 75.
	growth = 7 << 20
	// settle is from one count of connections to the next. One that moves from one of
	// Envoy's listeners to another is in neither for some microseconds.
	settle = 10 * time.Millisecond
)

// renewal is what is known of the present Envoy for that.
type renewal struct {
	ready     time.Time
	resident  int64       // bytes, when it was ready
	replacing atomic.Bool // until it has ended
	renewed   atomic.Bool // until the next one is started
}

// ready returns when the Envoy that was just started is ready.
func (a *agent) ready(ctx context.Context) error {
	err := a.proxy.Ready(ctx)
	if err == nil {
		a.renewal.ready, a.renewal.resident = time.Now(), resident(a.super.PID())
	}
	return err
}

// answered is called each time that the ready Envoy has answered a poll.
func (a *agent) answered(ctx context.Context) {
	defer a.standbys.check() // later: nothing can be held back while copies are made
	r := &a.renewal
	after, now := a.config.Envoy.RenewAfter, resident(a.super.PID())
	// While the control plane is away a new Envoy would get all again that this one has.
	due := after > 0 && a.relay.State().Connected && time.Since(r.ready) >= after && r.resident > 0 && now-r.resident >= growth
	if !due || a.super.State() != supervise.Serving || !a.unused(ctx) {
		return
	}
	if !a.standbys.hold() || !a.unused(ctx) || !a.unusedAfter(ctx, settle) {
		a.problem("handing over to Envoy again", a.standbys.Close())
		return
	}
	a.log.Info("Envoy is replaced: its memory has grown, and it has no connection", "ready", r.resident, "now", now)
	r.replacing.Store(true)
	r.renewed.Store(true)
	a.super.Replace()
}

func (a *agent) unusedAfter(ctx context.Context, d time.Duration) bool {
	time.Sleep(d)
	return a.unused(ctx)
}

// unused reports whether Envoy has no connection, nor one that is on its way to it.
func (a *agent) unused(ctx context.Context) bool {
	n, err := a.active(ctx)
	return err == nil && n == 0 && a.standbys.counts().Relaying == 0
}

// resident is the memory of a process in bytes; 0 if that is not known.
func resident(pid int) int64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, pages int64
	fmt.Sscan(string(raw), &size, &pages)
	return pages * int64(os.Getpagesize())
}
