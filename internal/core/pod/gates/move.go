package gates

import (
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A Move is one transition of a pod: an event that the kubelet sees, or a change inside a container that the
// kubelet does not see. For the latter, Event contains only the container and the time.
type Move struct {
	Kind  MoveKind      `json:"move"`
	Event kubelet.Event `json:"event"`
	Edge  *startup.Edge `json:"edge,omitempty"`  // for Notified
	Fault string        `json:"fault,omitempty"` // kind of the fault; empty if the transition is not a fault
}

// MoveKind is the kind of a transition.
type MoveKind string

const (
	Observed  MoveKind = "observed" // the kubelet sees the event
	Released  MoveKind = "released" // the gate of a container opens
	Recovered MoveKind = "healthy"
	Sickened  MoveKind = "unhealthy"
	Notified  MoveKind = "notified" // a gate notifies its container of a restart of Edge.From
)

// Apply applies the transition to both models, and returns the resulting events.
func (m Move) Apply(k *kubelet.State, s *State) (happened startup.Timeline) {
	name, at := m.Event.Container, m.Event.At
	switch m.Kind {
	case Released:
		*s, happened = s.Release(name, at)
	case Recovered, Sickened:
		*s, happened = s.SetHealth(name, m.Kind == Recovered, at)
	case Notified:
		*s, happened = s.Notify(*m.Edge, at)
	default:
		after, actions := k.Step(m.Event)
		*s, happened = s.Follow(m.Event, kubelet.Happened(*k, m.Event, actions))
		*k = after
	}
	return happened
}
