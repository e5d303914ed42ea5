package startup

import "time"

// A Status is the state of a container at some time, in the present sandbox of its pod. The zero value is the
// state of a container without any event.
type Status struct {
	Ran       bool // its command has been started at least once
	Running   bool
	Healthy   bool
	Completed bool // it ended with exit code 0, at least once
	Failed    bool // it ended, and its last end was a failure
	Absent    bool // the pod has no such container
}

// Observe updates the status by an event of the same container.
func (s *Status) Observe(ev Event) {
	switch ev.What {
	case IsStarted:
		*s = Status{Ran: true, Running: true, Completed: s.Completed}
	case IsHealthy:
		s.Healthy = true
	case IsUnhealthy:
		s.Healthy = false
	case IsCompleted:
		s.Running, s.Healthy, s.Completed, s.Failed = false, false, true, false
	case HasFailed:
		s.Running, s.Healthy, s.Failed = false, false, true
	}
}

// Reached reports whether the container has reached the condition. A container that has completed counts as
// started, unless its latest end was a failure.
func (s Status) Reached(c Condition) bool {
	switch c {
	case Started:
		return s.Running || s.Completed && !s.Failed
	case Healthy:
		return s.Healthy
	default:
		return s.Completed
	}
}

// A Decision tells whether the container To of an edge may run at some time.
type Decision int

const (
	Blocked   Decision = iota // To must wait
	Satisfied                 // To may run: From has reached the condition
	Waived                    // To may run: From is optional, and has failed or is absent
	Expired                   // To may run: its wait has timed out, and the edge has OnTimeout [Continue]
	GivenUp                   // To must end with an error: its wait has timed out
)

// Open reports whether the container To may run.
func (d Decision) Open() bool { return d == Satisfied || d == Waived || d == Expired }

// Decide returns whether the container e.To may run now, if it has waited for the given time and e.From has the
// given status. This function is the only definition of the rule: [Check], the gate and the gate's model all
// call it.
func (e Edge) Decide(from Status, waited time.Duration) Decision {
	expired := e.Timeout > 0 && waited >= e.Timeout
	switch {
	case from.Reached(e.After):
		return Satisfied
	case e.Optional && (from.Failed || from.Absent):
		return Waived
	case expired && e.OnTimeout == Continue:
		return Expired
	case expired:
		return GivenUp
	default:
		return Blocked
	}
}
