package xds

import (
	"strconv"
	"time"
)

// An exchange is the talk about one type: what was sent and what the client said to it.
type exchange struct {
	nonce    string // of the last message
	sent     string // version of the view that it came from
	acked    string // version of the view that was accepted last
	pending  []message
	rejected *Rejection // the last one; gone when something newer is accepted
	count    uint64     // messages sent
}

// A message is one that the client has not answered yet.
type message struct{ nonce, version string }

// maxPending bounds the messages that a client leaves without an answer and that are
// remembered. It only shows in the status.
const maxPending = 64

// send notes a message and returns its nonce.
func (c *client) send(sub *subscription) (nonce string) {
	c.nonces++
	e, version := &sub.exchange, c.view.Version()
	e.nonce, e.sent = strconv.FormatUint(c.nonces, 10), version
	e.count++
	if len(e.pending) == maxPending {
		e.pending = append(e.pending[:0], e.pending[1:]...)
	}
	e.pending = append(e.pending, message{e.nonce, version})
	return e.nonce
}

// answered notes what the client says to a message, if it is one of ours: why it does
// not take it, or nothing. It reports whether it was rejected.
func (e *exchange) answered(nonce, reason string, now time.Time) (rejected bool) {
	for i, m := range e.pending {
		if m.nonce != nonce {
			continue
		}
		e.pending = append(e.pending[:0], e.pending[i+1:]...)
		if reason != "" {
			e.rejected = &Rejection{Version: m.version, Reason: reason, Time: now}
			return true
		}
		e.acked, e.rejected = m.version, nil
		return false
	}
	return false
}
