package proxy

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"outrider.dev/internal/core/agent/supervise"
)

// Envoy subscribes to a cluster for each address that the application has tried, and never
// unsubscribes, so its memory grows. The control plane cannot remove such a cluster either: Envoy
// would not subscribe to it again, and each later connection would fail after a timeout (Envoy
// 1.40). So an Envoy that has grown is replaced by a new one, which subscribes only to the
// clusters that are used from then on. No connection is cut: Envoy is replaced at a moment when
// it has none, and new connections wait in the standby meanwhile.
const (
	// growth is the number of bytes by which Envoy's memory may grow after it got ready, for example from 68
	// MiB to 75 MiB.
	growth = 7 << 20
	// settle is the pause between two counts of connections. A connection that moves from one
	// of Envoy's listeners to another is counted in neither for some microseconds.
	settle = 10 * time.Millisecond
)

// renewal tracks the memory and the replacement of the current Envoy.
type renewal struct {
	ready     time.Time
	resident  int64       // bytes, when it was ready
	replacing atomic.Bool // from the decision to replace Envoy until that Envoy has ended
	renewed   atomic.Bool // from the decision to replace Envoy until the next one is started
}

// ready waits until the Envoy that was just started is ready.
func (a *agent) ready(ctx context.Context) error {
	err := a.proxy.Ready(ctx)
	if err == nil {
		a.renewal.ready, a.renewal.resident = time.Now(), resident(a.super.PID())
	}
	return err
}

// answered is called each time that the ready Envoy has answered a poll. It replaces Envoy if
// that is due.
func (a *agent) answered(ctx context.Context) {
	defer a.standbys.check() // last, because connections cannot be held while sockets are copied
	r := &a.renewal
	after, now := a.config.Envoy.RenewAfter, resident(a.super.PID())
	// While the control plane is unreachable, a new Envoy would get the same resources as this one.
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

// unused reports whether Envoy has no connection, and the standby relays none to it.
func (a *agent) unused(ctx context.Context) bool {
	n, err := a.active(ctx)
	return err == nil && n == 0 && a.standbys.counts().Relaying == 0
}

// resident returns the resident memory of a process in bytes; 0 if it is not known.
func resident(pid int) int64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	_, rest, _ := strings.Cut(string(raw), " ") // the first number is the size; fmt.Sscan would link 15 kB
	number, _, _ := strings.Cut(rest, " ")
	pages, _ := strconv.ParseInt(number, 10, 64)
	return pages * int64(os.Getpagesize())
}
