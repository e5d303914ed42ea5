package kubelet

import "time"

// A backOff makes the kubelet wait longer and longer. The zero value is none.
// Source: client-go v0.34.4 util/flowcontrol/backoff.go; the figures are
// containerBackOffPeriod, MaxContainerBackOff and imageBackOffPeriod in kubelet.go.
type backOff struct {
	delay time.Duration
	since time.Duration // of the last start
}

const (
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
	forgetting = 10 * time.Minute // of running well (HasExpiredFunc in kubelet.go)
)

// holds returns until when a container that ended at that time must wait, and
// whether that is in the future. The first restart is at once.
func (b backOff) holds(ended, now time.Duration) (time.Duration, bool) {
	if ended-b.since > forgetting {
		return 0, false
	}
	return ended + b.delay, now < ended+b.delay
}

// next is the back-off after one more start.
func (b backOff) next(ended, now time.Duration) backOff {
	if b.delay == 0 || ended-b.since > forgetting {
		return backOff{delay: firstDelay, since: now}
	}
	return backOff{delay: min(2*b.delay, maxDelay), since: now}
}
