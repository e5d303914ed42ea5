package xds

import (
	"strconv"
	"time"
)

// An ackState records which messages of one type were sent, and which the client acknowledged.
type ackState struct {
	nonce    string // of the last message
	sent     string // version of the snapshot in the last message
	acked    string // version of the last accepted snapshot
	pending  []message
	rejected *Rejection // the last NACK; nil after a newer message was accepted
	count    uint64     // messages sent
}

// A message awaits its ACK or NACK.
type message struct{ nonce, version string }

// maxPending limits the number of messages in pending, which is only shown in the status.
const maxPending = 64

// nextNonce records a new message and returns its nonce.
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

// acknowledge records an ACK or, if there is a reason, a NACK. It reports whether it was a NACK of a
// pending message.
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
