package xds

import (
	"strconv"
	"time"
)

// An ackState is what was sent of one type and what the client acknowledged.
type ackState struct {
	nonce    string // of the last message
	sent     string // version of the snapshot in the last message
	acked    string // version of the snapshot that was accepted last
	pending  []message
	rejected *Rejection // the last NACK; nil once something newer is accepted
	count    uint64     // messages sent
}

// A message has neither an ACK nor a NACK yet.
type message struct{ nonce, version string }

// maxPending bounds pending. It affects only the status.
const maxPending = 64

// nextNonce notes a new message and returns its nonce.
func (c *client) nextNonce(sub *subscription) string {
	c.nonces++
	a, version := &sub.acks, c.snapshot.Version()
	a.nonce, a.sent = strconv.FormatUint(c.nonces, 10), version
	a.count++
	if len(a.pending) == maxPending {
		a.pending = append(a.pending[:0], a.pending[1:]...)
	}
	a.pending = append(a.pending, message{a.nonce, version})
	return a.nonce
}

// acknowledge notes an ACK, or with a reason a NACK, and reports whether it was the NACK
// of a pending message.
func (a *ackState) acknowledge(nonce, reason string, now time.Time) (rejected bool) {
	for i, m := range a.pending {
		if m.nonce != nonce {
			continue
		}
		a.pending = append(a.pending[:0], a.pending[i+1:]...)
		if reason != "" {
			a.rejected = &Rejection{Version: m.version, Reason: reason, Time: now}
			return true
		}
		a.acked, a.rejected = m.version, nil
		return false
	}
	return false
}
