package startup

import (
	"math"
	"time"
)

// A Violation is an edge that a timeline did not keep.
type Violation struct {
	Edge Edge   `json:"edge"`
	How  Breach `json:"how"`

	// At is when it happened: To, in this incarnation, ran, or was left behind; of
	// [OutlivedFrom], when From ended. By is how much too early that was: until From got
	// there, or To ended; [Forever] if it never did.
	At          time.Duration `json:"at"`
	Incarnation int           `json:"incarnation,omitempty"`
	By          time.Duration `json:"by"`
}

// Breach is the way in which an edge was violated.
type Breach string

const (
	RanTooEarly  Breach = "ran-too-early" // To started before From had reached the condition
	NotFollowed  Breach = "not-followed"  // From restarted, and To was neither told nor restarted
	OutlivedFrom Breach = "outlived-from" // the pod stopped, and From ended while To still ran
)

// Forever is how much too early a container runs whose dependency never comes, or ends
// before one that never does.
const Forever = time.Duration(math.MaxInt64)

// Check returns the edges of p that t violates, in the order of p.Edges; of one
// edge, in the order of time. A container that never started violates nothing.
//
// It judges the containers, not the way: a To that a gate holds has not started.
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

// A checker follows one edge through a timeline.
type checker struct {
	edge     Edge
	from, to life
	deleted  bool
	since    time.Duration // To waits since then
	found    []Violation
}

// A life is what is known of a container at one instant.
type life struct {
	runs        bool
	healthy     bool
	completed   bool // at least once, in this sandbox
	failed      bool // it runs no longer, and not because it was done
	everStarted bool
	incarnation int
}

func (c *checker) observe(ev Event, later Timeline) {
	switch ev.What {
	case PodDeleted:
		c.deleted = true
		return
	case NewSandbox:
		c.from, c.to, c.since = life{}, life{}, ev.At
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
		c.judgeStart(ev, later)
	}
	c.to.observe(ev)
}

// judgeStart: was To allowed to start at this moment?
func (c *checker) judgeStart(ev Event, later Timeline) {
	late := c.edge.Timeout > 0 && ev.At-c.since >= c.edge.Timeout
	switch {
	case c.from.reached(c.edge.After):
	case c.edge.Optional && (c.from.failed || c.from == life{} && !later.mentions(c.edge.From)):
	case late && c.edge.OnTimeout == Continue:
	default:
		c.add(RanTooEarly, ev, c.untilReached(ev.At, later))
	}
}

// untilReached is how long after an instant From reached the condition.
func (c *checker) untilReached(at time.Duration, later Timeline) time.Duration {
	from := c.from
	for _, ev := range later {
		if ev.Container == c.edge.From {
			from.observe(ev)
		}
		if from.reached(c.edge.After) {
			return ev.At - at
		}
	}
	return Forever
}

func (c *checker) observeFrom(ev Event, later Timeline) {
	if ev.What.ends() && c.deleted && c.to.runs {
		c.judgeEnd(ev, later)
	}
	again := ev.What == IsStarted && c.from.everStarted
	c.from.observe(ev)
	if again && c.to.runs && c.edge.OnRestart != Ignore {
		c.judgeFollowing(ev, later)
	}
}

// judgeEnd: From ended while To ran. Was that while the pod stopped?
func (c *checker) judgeEnd(ev Event, later Timeline) {
	if c.edge.After == Completed {
		return
	}
	for _, next := range later {
		if next.Container == c.edge.To && next.What.ends() {
			if next.At > ev.At {
				c.add(OutlivedFrom, Event{At: ev.At, Incarnation: c.to.incarnation}, next.At-ev.At)
			}
			return
		}
	}
	c.add(OutlivedFrom, Event{At: ev.At, Incarnation: c.to.incarnation}, Forever)
}

// judgeFollowing: From is back. Does To follow before the timeline ends, or the pod?
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
	c.add(NotFollowed, Event{At: ev.At, Incarnation: c.to.incarnation}, Forever)
}

func (c *checker) add(how Breach, to Event, by time.Duration) {
	c.found = append(c.found, Violation{Edge: c.edge, How: how, At: to.At, Incarnation: to.Incarnation, By: by})
}

// observe takes an event of this container into account.
func (l *life) observe(ev Event) {
	switch ev.What {
	case IsStarted:
		*l = life{runs: true, everStarted: true, completed: l.completed, incarnation: ev.Incarnation}
	case IsHealthy:
		l.healthy = true
	case IsUnhealthy:
		l.healthy = false
	case IsCompleted:
		l.runs, l.healthy, l.completed, l.failed = false, false, true, false
	case HasFailed:
		l.runs, l.healthy, l.failed = false, false, true
	}
}

// reached says whether the condition holds. One that has completed was started.
func (l life) reached(c Condition) bool {
	switch c {
	case Started:
		return l.runs || l.completed && !l.failed
	case Healthy:
		return l.healthy
	default:
		return l.completed
	}
}

// mentions says whether the timeline has an event of that container.
func (t Timeline) mentions(name string) bool {
	for _, ev := range t {
		if ev.Container == name {
			return true
		}
	}
	return false
}
