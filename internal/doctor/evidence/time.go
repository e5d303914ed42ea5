package evidence

import (
	"time"
)

// A Clock is the name of the clock from which a time was read.
type Clock string

// The known clocks. A log whose zone is not known has its own clock.
const (
	NodeClock Clock = "node"       // clock of kubelet, container runtime and containers
	APIClock  Clock = "API server" // clock of API server, scheduler and controllers, which count as one clock
)

// A Time is an instant that was not before At and was before At+Error, by a clock. The zero value is an unknown time.
type Time struct {
	At    time.Time     `json:"at"`
	Error time.Duration `json:"error"`
	Clock Clock         `json:"clock"`
}

// Known reports whether the time is known.
func (t Time) Known() bool { return !t.At.IsZero() }

// Latest returns the end of the interval that contains the instant.
func (t Time) Latest() time.Time { return t.At.Add(t.Error) }

// An Order is the order of two instants, as far as it is known.
type Order int

// The orders.
const (
	CannotTell Order = iota
	Before
	After
)

// Compare returns Before if t was certainly before u, After if it was certainly after u, and else CannotTell.
func (t Time) Compare(u Time) Order {
	switch {
	case !t.Known() || !u.Known() || t.Clock != u.Clock:
		return CannotTell
	case t.exact() && u.exact() && t.At.Equal(u.At):
		return CannotTell
	case !t.Latest().After(u.At):
		return Before
	case !u.Latest().After(t.At):
		return After
	}
	return CannotTell
}

func (t Time) exact() bool { return t.Error == 0 }

// Since returns the least and the greatest possible time from u to t. ok is false if one of them is unknown, or if
// they are from different clocks.
func (t Time) Since(u Time) (least, most time.Duration, ok bool) {
	if !t.Known() || !u.Known() || t.Clock != u.Clock {
		return 0, 0, false
	}
	return t.At.Sub(u.Latest()), t.Latest().Sub(u.At), true
}

// Second converts a time of the API, which has a resolution of one second.
func Second(t time.Time, c Clock) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{At: t.UTC(), Error: time.Second, Clock: c}
}

// A Skew is the range of times by which the node's clock may be ahead of the API server's.
type Skew struct {
	Least, Most       time.Duration
	HasLeast, HasMost bool
	By                [2]Source // sources of Least and Most
}

// Contradicts reports whether no constant difference of the clocks explains all times: one of the clocks was set
// meanwhile.
func (s Skew) Contradicts() bool { return s.HasLeast && s.HasMost && s.Least > s.Most }

// Place converts a time of the API server to the node's clock, and adds the error of the conversion. The result is
// unknown unless both bounds are known.
func (s Skew) Place(t Time) Time {
	switch {
	case t.Clock != APIClock:
		return t
	case !s.HasLeast || !s.HasMost || s.Contradicts():
		return Time{}
	}
	return Time{At: t.At.Add(s.Least), Error: t.Error + s.Most - s.Least, Clock: NodeClock}
}
