package kubelet

import "time"

// A backOff is the growing delay after which the kubelet retries something. The zero value means no delay.
// Source: client-go v0.34.4 util/flowcontrol/backoff.go; the constants are containerBackOffPeriod,
// MaxContainerBackOff and imageBackOffPeriod in kubelet.go.
type backOff struct {
	delay time.Duration
	since time.Duration // time of the last start
	kept  bool          // see [Version.KeepsBackOff]
}

const (
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
	forgetting = 10 * time.Minute // a container that ran for longer than this has no delay at its next restart (HasExpiredFunc in kubelet.go)
)

// holds returns the end of the delay for a container that ended at the given time, and whether this end is in
// the future. The first restart has no delay.
func (b backOff) holds(ended, now time.Duration) (time.Duration, bool) {
	if b.forgotten(ended) {
		return 0, false
	}
	return ended + b.delay, now < ended+b.delay
}

// next returns the back-off after a container that ended at the given time has been started again at now.
func (b backOff) next(ended, now time.Duration) backOff {
	delay := min(2*b.delay, maxDelay)
	if b.delay == 0 || b.forgotten(ended) {
		delay = firstDelay
	}
	return backOff{delay: delay, since: now, kept: b.kept}
}

// longest returns the longest delay after the given number of failed starts.
func (b backOff) longest(failures int) time.Duration {
	d := max(b.delay, firstDelay)
	for ; failures > 0 && d < maxDelay; failures-- {
		d = min(2*d, maxDelay)
	}
	return d
}

// forgotten reports whether a container that ended at the given time had run for so long that it has no delay.
func (b backOff) forgotten(ended time.Duration) bool { return !b.kept && ended-b.since > forgetting }
