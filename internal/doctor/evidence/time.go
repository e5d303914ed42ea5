package evidence

import (
	"time"
)

// A Clock is what a time was read from.
type Clock string

// The clocks. A log whose zone is not known has one of its own.
const (
	NodeClock Clock = "node"       // kubelet, container runtime and containers
	APIClock  Clock = "API server" // and scheduler and controllers: creation of objects
)

// A Time is an instant in [At, At+Error) of a clock. The zero value is not known.
type Time struct {
	At    time.Time     `json:"at"`
	Error time.Duration `json:"error"`
	Clock Clock         `json:"clock"`
}

// Known reports whether there is a time at all.
func (t Time) Known() bool { return !t.At.IsZero() }

// Latest is the end of the span that the instant is in.
func (t Time) Latest() time.Time { return t.At.Add(t.Error) }

// An Order is what is known of two instants.
type Order int

// The orders.
const (
	CannotTell Order = iota
	Before
	After
)

// Compare says whether t was before or after u, if that is certain.
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

// Since is the least and the greatest time from u to t; false if they are of different clocks.
func (t Time) Since(u Time) (least, most time.Duration, ok bool) {
	if !t.Known() || !u.Known() || t.Clock != u.Clock {
		return 0, 0, false
	}
	return t.At.Sub(u.Latest()), t.Latest().Sub(u.At), true
}

// seconds is a time of the API, which has whole seconds.
func seconds(t time.Time, c Clock) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{At: t.UTC(), Error: time.Second, Clock: c}
}

// A Skew bounds how far the node's clock is ahead of the API server's.
type Skew struct {
	Least, Most       time.Duration
	HasLeast, HasMost bool
	By                [2]Source // what Least and Most are from
}

// Contradicts reports whether no skew explains all times: a clock was set meanwhile.
func (s Skew) Contradicts() bool { return s.HasLeast && s.HasMost && s.Least > s.Most }

// Place is a time of the API server by the node's clock, with the error that this adds. It is not
// known without both bounds.
func (s Skew) Place(t Time) Time {
	switch {
	case t.Clock != APIClock:
		return t
	case !s.HasLeast || !s.HasMost || s.Contradicts():
		return Time{}
	}
	return Time{At: t.At.Add(s.Least), Error: t.Error + s.Most - s.Least, Clock: NodeClock}
}
