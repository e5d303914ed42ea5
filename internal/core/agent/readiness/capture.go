package readiness

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"outrider.dev/internal/base/contract"
)

// CaptureOptions configure a Capture. The zero value of a field selects its default.
type CaptureOptions struct {
	IPv4, IPv6        bool   // the families of the pod
	Inbound, Outbound uint16 // the capture ports; default: those in package contract

	// Interval is the pause between two proofs while capture works; default 30s.
	Interval time.Duration

	// Provable reports whether a proof would come to [Capture.Arrived] now. While it would not, the condition stays
	// as it is. Default: it always would.
	Provable func() bool
}

// A Capture proves during the whole life of a pod that its connections reach the proxy's ports. It needs no
// privilege: it makes connections that come to the agent's own listener, [Capture.Arrived], if the rules are there.
// So an arrival cannot be faked by the network or by an application, Envoy sees nothing of it, and no packet leaves the
// pod. Without the rules one SYN for each attempt leaves it, and dies in the first router.
//
// The absence of an arrival proves nothing on a busy machine. It counts only if a later connection to the proxy's port
// itself arrived: the listener takes connections in the order in which they came. And capture that has worked
// counts as gone only after several such absences in a row. Where nothing can be proved, the condition stays as it is,
// with a note since when and why; [Capture.Unproved] counts that time.
type Capture struct {
	o    CaptureOptions
	ways []*way                                   // by family: inbound, then outbound
	held bool                                     // the condition has held at least once
	try  func(ctx context.Context, w *way) result // the method attempt; a test replaces it

	inPlace  atomic.Bool
	lost     atomic.Uint64
	proofs   atomic.Uint64
	unproved atomic.Int64 // since when a way has not been proved, in nanoseconds since 1970; 0: all were just now

	mu      sync.Mutex
	expects map[ends]chan struct{}
}

// ends are the source port and the destination of a proof.
type ends struct {
	from uint16
	to   netip.AddrPort
}

// A way is a direction of connections of one IP family.
type way struct {
	outbound, six bool

	worked bool      // it has worked at least once
	tries  int       // attempts that did not arrive before it has worked
	absent int       // attempts in a row that did not arrive
	silent int       // attempts in a row of which nothing is known
	since  time.Time // of the first attempt in a row that was not proved to arrive
	lost   bool      // it counts as gone
	why    string    // the reason of the first absence in a row
	last   uint32    // number of the IPv4 destination that was tried last
	result result
}

func (w *way) String() string {
	direction, family := "inbound", "IPv4"
	if w.outbound {
		direction = "outbound"
	}
	if w.six {
		family = "IPv6"
	}
	return direction + " " + family
}

// A result is the outcome of an attempt on one way.
type result struct {
	verdict verdict
	why     string
}

// A verdict says what became of an attempt.
type verdict uint8

const (
	unknown verdict = iota // nothing can be said; why has the reason
	absent                 // the connection did not arrive, and a later control did
	arrived
	noRoute // nothing was sent, since there is no route to the destination
)

// Pauses and counts of proofs.
const (
	proofInterval = 30 * time.Second
	proofAgain    = time.Second            // after an absence, until it is confirmed
	proofBack     = 5 * time.Second        // while capture is gone
	proofBegin    = 100 * time.Millisecond // until capture has worked for the first time

	absences = 3 // in a row, until capture that has worked counts as gone
	// firstTries is the number of rounds in which a way may fail that has never worked. Then an outbound way is not
	// tried any more: the rules do not capture the agent's proof. Nor do they capture the inbound one, if the outbound
	// one arrived.
	firstTries = 4
)

// Notes for proofs that cannot be made.
const (
	NotProved        = "outbound proved at init only: the rules do not capture the agent's own proof"
	InNotProved      = "inbound proved at init only: the rules, of an older release, do not capture the agent's own proof"
	OnlyEnvoyListens = "proved at init only: without a standby only Envoy could accept the proof"
)

// NewCapture returns a Capture that has proved nothing yet.
func NewCapture(o CaptureOptions) *Capture {
	o.Inbound = cmp.Or(o.Inbound, contract.InboundPort)
	o.Outbound = cmp.Or(o.Outbound, contract.OutboundPort)
	o.Interval = cmp.Or(o.Interval, proofInterval)
	if o.Provable == nil {
		o.Provable = func() bool { return true }
	}
	c := &Capture{o: o, expects: map[ends]chan struct{}{}}
	c.try = c.attempt
	for _, six := range []bool{false, true} {
		if six && o.IPv6 || !six && o.IPv4 {
			c.ways = append(c.ways, &way{six: six}, &way{outbound: true, six: six, last: rand.Uint32()})
		}
	}
	return c
}

// InPlace reports whether capture worked when that was last known.
func (c *Capture) InPlace() bool { return c.inPlace.Load() }

// Lost returns how often capture was lost after it had worked.
func (c *Capture) Lost() uint64 { return c.lost.Load() }

// Proofs returns how often all ways were tried.
func (c *Capture) Proofs() uint64 { return c.proofs.Load() }

// Unproved returns for how long some direction of some family has not been proved, be it gone or not known; 0 if all of
// them were proved in the last round.
func (c *Capture) Unproved() time.Duration {
	since := c.unproved.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
}

// Keep proves capture again and again until ctx ends, and sets the condition CaptureRules.
func (c *Capture) Keep(ctx context.Context, b *Board) {
	for {
		select {
		case <-time.After(c.round(ctx, b)):
		case <-ctx.Done():
			return
		}
	}
}

// round tries each way once, and returns the pause until the next round.
func (c *Capture) round(ctx context.Context, b *Board) time.Duration {
	if !c.o.Provable() {
		return min(c.o.Interval, proofAgain)
	}
	for _, outbound := range []bool{false, true} {
		var tries sync.WaitGroup
		for i, w := range c.ways {
			if w.outbound != outbound || outbound && !w.worked && w.tries >= firstTries {
				continue
			}
			tries.Go(func() {
				first := !w.worked
				w.record(c.try(ctx, w))
				if first && w.worked && !outbound && !c.ways[i+1].worked {
					c.ways[i+1].tries = 0 // there are rules, which may be new
				}
			})
		}
		tries.Wait()
	}
	if ctx.Err() != nil || !c.o.Provable() {
		return 0 // an attempt may have failed because of that
	}
	defer c.proofs.Add(1)
	return c.conclude(b)
}

// record keeps the result of an attempt, with the reason of the first one in a row: each attempt has another
// destination, and a changed reason would be logged.
func (w *way) record(r result) {
	if r.verdict == w.result.verdict {
		r.why = cmp.Or(w.result.why, r.why)
	}
	w.result = r
	switch r.verdict {
	case arrived:
		w.worked, w.lost, w.absent, w.silent, w.since = true, false, 0, 0, time.Time{}
		return
	case absent:
		w.absent++
		w.silent = 0
		if w.absent == 1 {
			w.why = r.why
		}
		if !w.worked {
			w.tries++
		}
	default:
		w.silent++
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
}

// note says since when a way is not proved, and why.
func (w *way) note() string {
	return fmt.Sprintf("not proved since %s: %s", w.since.UTC().Format(time.RFC3339), w.result.why)
}

// conclude sets the condition after a round, and returns the pause until the next one.
func (c *Capture) conclude(b *Board) time.Duration {
	was := c.inPlace.Load()
	failed, notes, doubt := c.weigh(was)
	c.unproved.Store(c.unprovedSince())
	switch {
	case len(failed) > 0:
		c.inPlace.Store(false)
		if was {
			c.lost.Add(1)
		}
		b.Set(CaptureRules, false, strings.Join(failed, "; "))
	case doubt && !was: // lost, and not known to be back
	default:
		c.held = true
		c.inPlace.Store(true)
		b.Set(CaptureRules, true, strings.Join(slices.Compact(notes), "; "))
	}
	switch {
	case c.inPlace.Load() && !doubt:
		return c.o.Interval
	case c.inPlace.Load():
		return min(c.o.Interval, proofAgain)
	case c.held:
		return min(c.o.Interval, proofBack)
	}
	return min(c.o.Interval, proofBegin)
}

// unprovedSince returns the earliest time since which a way is not proved, in nanoseconds since 1970, or 0.
func (c *Capture) unprovedSince() (since int64) {
	for _, w := range c.ways {
		if t := w.since.UnixNano(); !w.since.IsZero() && (since == 0 || t < since) {
			since = t
		}
	}
	return since
}

// weigh returns the reasons why capture is gone or not yet proved, the notes on ways that are not proved, and whether
// a way is in doubt although capture counts as in place.
//
// complexity: one case for each state of a way.
func (c *Capture) weigh(inPlace bool) (failed, notes []string, doubt bool) {
	var open []string
	for i, w := range c.ways {
		v := w.result.verdict
		switch {
		case v == arrived:
		case w.outbound && !w.worked && w.tries > 0:
			notes = append(notes, NotProved)
		case !w.outbound && !w.worked && w.tries >= firstTries && c.ways[i+1].worked:
			w.lost = false
			notes = append(notes, InNotProved)
		case w.lost || v == absent && (w.absent >= absences || !inPlace):
			w.lost = true
			failed = append(failed, w.why)
		case v == unknown && !w.worked && !w.outbound:
			open = append(open, w.result.why)
		case v == noRoute || !w.worked || w.silent >= absences:
			notes = append(notes, w.note())
		default:
			doubt = true
		}
	}
	slices.Sort(notes)
	return append(failed, open...), notes, doubt
}
