package kubelet

import (
	"fmt"
	"time"

	"outrider.dev/startup"
)

// Happened returns an event, and the kubelet's actions in answer to it, as a timeline. The parameter before is
// the state before the event. The timeline contains only what the kubelet can see. The caller must add when a
// container becomes healthy and when a gate in it waits.
func Happened(before State, e Event, answer []Action) startup.Timeline {
	o := occurrence{before: before, event: e}
	o.ofEvent()
	for _, a := range answer {
		o.ofAction(a)
	}
	return o.timeline
}

// An occurrence collects the timeline of one event.
type occurrence struct {
	before   State
	event    Event
	timeline startup.Timeline
}

// at returns the time of the event, or the present time if the event's time is in the past.
func (o *occurrence) at() time.Duration { return max(o.event.At, o.before.now) }

func (o *occurrence) add(at time.Duration, name string, what startup.What, detail string) {
	incarnation := max(o.before.View(name).Incarnation, 0)
	if what == startup.IsStarted || o.event.Kind == Started {
		incarnation = o.before.View(name).Incarnation + 1
	}
	o.timeline = append(o.timeline, startup.Event{Container: name, What: what, At: at, Incarnation: incarnation, Detail: detail})
}

func (o *occurrence) ofEvent() {
	e, at := o.event, o.at()
	switch e.Kind {
	case Started:
		if e.OK && o.before.sandbox.is == sandboxReady {
			o.add(at, e.Container, startup.IsStarted, "")
		} else {
			o.add(at, e.Container, startup.HasFailed, "could not be started")
		}
	case Exited:
		if e.Code == 0 {
			o.add(at, e.Container, startup.IsCompleted, "")
		} else {
			o.add(at, e.Container, startup.HasFailed, fmt.Sprintf("exit code %d", e.Code))
		}
	case HookReturned:
		if !e.OK {
			o.add(at, e.Container, startup.HookFailed, string(e.Which))
		}
	case SandboxDied:
		for i, c := range o.before.c {
			if c.life.run == running {
				o.add(at, o.before.name(i), startup.HasFailed, "the sandbox died")
			}
		}
	case SandboxReady:
		if e.OK && o.before.sandbox.is == deadSandbox {
			o.timeline = append(o.timeline, startup.Event{What: startup.NewSandbox, At: at})
		}
	case Deleted:
		o.timeline = append(o.timeline, startup.Event{What: startup.PodDeleted, At: at})
	}
}

func (o *occurrence) ofAction(a Action) {
	switch {
	case a.Kind == Stop:
		o.add(a.At, a.Container, startup.IsStopping, "")
	case a.Kind == BackOff:
		o.add(a.At, a.Container, startup.IsWaiting, fmt.Sprintf("%s, %s", a.Reason, a.Timeout))
	case a.Kind == Publish && a.Status.HasIP && !o.before.status.HasIP:
		o.timeline = append(o.timeline, startup.Event{What: startup.HasAddress, At: a.At})
	}
}
