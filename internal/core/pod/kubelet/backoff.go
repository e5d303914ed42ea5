package kubelet

import "time"

// A backOff is the growing delay before the kubelet tries something again. The zero value is no delay.
// Source: client-go v0.34.4 util/flowcontrol/backoff.go; the figures are containerBackOffPeriod,
// MaxContainerBackOff and imageBackOffPeriod in kubelet.go.
type backOff struct {
	delay time.Duration
	since time.Duration // time of the last start
}

const (
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
	forgetting = 10 * time.Minute // a container that ran well for this long starts over (HasExpiredFunc in kubelet.go)
)

// holds returns the time until which a container that ended at the given time must wait, and whether that
// time is still to come. The first restart is immediate.
func (b backOff) holds(ended, now time.Duration) (time.Duration, bool) {
	if ended-b.since > forgetting {
		return 0, false
	}
	return ended + b.delay, now < ended+b.delay
}

// next returns the back-off after one more start.
func (b backOff) next(ended, now time.Duration) backOff {
	if b.delay == 0 || ended-b.since > forgetting {
		return backOff{delay: firstDelay, since: now}
	}
	return backOff{delay: min(2*b.delay, maxDelay), since: now}
}
