package startup

import (
	"fmt"
	"math"
	"time"
)

// A Violation is a breach of an edge, found in a timeline.
type Violation struct {
	Edge Edge   `json:"edge"`
	How  Breach `json:"how"`

	// At is the time of the violation: when Edge.To started, or when Edge.From restarted and Edge.To did not
	// react; for [OutlivedDependency] when Edge.From ended. By is the time from At until Edge.From reached the
	// condition, or for OutlivedDependency until Edge.To ended. It is [Forever] if that never happened.
	At          time.Duration `json:"at"`
	Incarnation int           `json:"incarnation,omitempty"`
	By          time.Duration `json:"by"`
}

// Breach is the kind of a violation.
type Breach string

const (
	StartedTooEarly      Breach = "started-too-early"      // To started before From had reached the condition
	RestartNotPropagated Breach = "restart-not-propagated" // From restarted, and To was neither notified nor restarted
	OutlivedDependency   Breach = "outlived-dependency"    // the pod was stopping, and From ended while To was still running
)

// Forever is the value of Violation.By if Edge.From never reached the condition, or if Edge.To never ended.
const Forever = time.Duration(math.MaxInt64)

// Sentence describes the violation, without its time.
func (v Violation) Sentence() string {
	from, to := v.Edge.From, v.Edge.To
	s := fmt.Sprintf("%s ran before %s was %s", to, from, v.Edge.After)
	switch v.How {
	case RestartNotPropagated:
		s = fmt.Sprintf("%s restarted and %s did not follow", from, to)
	case OutlivedDependency:
		s = fmt.Sprintf("%s ended while %s still ran", from, to)
	}
	switch {
	case v.By <= 0 || v.By == Forever:
		return s
	case v.By < time.Millisecond:
		return s + ", by " + v.By.String()
	}
	return s + ", by " + v.By.Round(time.Millisecond).String()
}

// Check returns the violations of p's edges in t. They are in the order of p.Edges. The violations of one edge
// are in the order of time. A container that never started causes no violation.
//
// The mechanism of an edge has no influence on the result. A container whose gate has not opened counts as not
// started.
func Check(p Plan, t Timeline) []Violation {
	t = t.Sorted()
	var out []Violation
	for _, e := range p.Expand().Edges {
		c := checker{edge: e}
		for i, ev := range t {
			c.observe(ev, t[i+1:])
		}
		out = append(out, c.found...)
	}
	return out
}

// A checker follows the containers of one edge through a timeline.
type checker struct {
	edge        Edge
	from, to    Status
	incarnation int // incarnation of the container To that runs or waits
	deleted     bool
	since       time.Duration // when the container To began to wait
	found       []Violation
}

func (c *checker) observe(ev Event, later Timeline) {
	switch ev.What {
	case PodDeleted:
		c.deleted = true
		return
	case NewSandbox:
		c.from, c.to, c.since = Status{}, Status{}, ev.At
		return
	}
	if ev.Container == c.edge.To {
		c.observeTo(ev, later)
	}
	if ev.Container == c.edge.From {
		c.observeFrom(ev, later)
	}
}

func (c *checker) observeTo(ev Event, later Timeline) {
	switch {
	case ev.What == IsWaiting, ev.What.ends():
		c.since = ev.At
	case ev.What == IsStarted:
		c.incarnation = ev.Incarnation
		c.judgeStart(ev, later)
	}
	c.to.Observe(ev)
}

// judgeStart adds a violation if the container To started although the edge did not allow that.
func (c *checker) judgeStart(ev Event, later Timeline) {
	from := c.from
	from.Absent = from == Status{} && !later.mentions(c.edge.From)
	if !c.edge.Decide(from, ev.At-c.since).Open() {
		c.add(StartedTooEarly, ev.At, c.untilReached(ev.At, later))
	}
}

// untilReached returns the duration from the given time until the container From reached the condition;
// [Forever] if it did not.
func (c *checker) untilReached(at time.Duration, later Timeline) time.Duration {
	from := c.from
	for _, ev := range later {
		if ev.Container == c.edge.From {
			from.Observe(ev)
		}
		if from.Reached(c.edge.After) {
			return ev.At - at
		}
	}
	return Forever
}

func (c *checker) observeFrom(ev Event, later Timeline) {
	if ev.What.ends() && c.deleted && c.to.Running {
		c.judgeEnd(ev, later)
	}
	again := ev.What == IsStarted && c.from.Ran
	c.from.Observe(ev)
	if again && c.to.Running && c.edge.OnRestart != Ignore {
		c.judgeFollowing(ev, later)
	}
}

// judgeEnd adds a violation if the container From ended before the container To while the pod stops.
func (c *checker) judgeEnd(ev Event, later Timeline) {
	if c.edge.After == Completed {
		return
	}
	outlived := Forever
	for _, next := range later {
		if next.Container == c.edge.To && next.What.ends() {
			outlived = next.At - ev.At
			break
		}
	}
	if outlived > 0 {
		c.add(OutlivedDependency, ev.At, outlived)
	}
}

// judgeFollowing adds a violation if the container From restarted and the container To did not react. There is
// none if the pod was deleted before To could react.
func (c *checker) judgeFollowing(ev Event, later Timeline) {
	for _, next := range later {
		switch {
		case next.What == PodDeleted:
			return
		case next.Container != c.edge.To:
		case next.What.ends(), next.What == IsNotified && c.edge.OnRestart == Notify:
			return
		}
	}
	c.add(RestartNotPropagated, ev.At, Forever)
}

func (c *checker) add(how Breach, at, by time.Duration) {
	c.found = append(c.found, Violation{Edge: c.edge, How: how, At: at, Incarnation: c.incarnation, By: by})
}

// mentions reports whether the timeline has an event of the named container.
func (t Timeline) mentions(name string) bool {
	for _, ev := range t {
		if ev.Container == name {
			return true
		}
	}
	return false
}
