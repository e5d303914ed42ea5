package kubelet

import (
	"fmt"

	"outrider.dev/startup"
)

// Happened returns an event and the kubelet's actions after it as a timeline. Before is
// the state before the event. It has only what the kubelet sees: that a container is
// healthy, or that a gate in it waits, must come from the caller.
func Happened(before State, e Event, answer []Action) startup.Timeline {
	var t startup.Timeline
	at := max(e.At, before.now)
	add := func(name string, what startup.What, format string, args ...any) {
		incarnation := max(before.View(name).Incarnation, 0)
		if what == startup.IsStarted || e.Kind == Started {
			incarnation = before.View(name).Incarnation + 1
		}
		t = append(t, startup.Event{Container: name, What: what, At: at, Incarnation: incarnation, Detail: fmt.Sprintf(format, args...)})
	}
	switch {
	case e.Kind == Started && e.OK && before.sandbox == sandboxReady:
		add(e.Container, startup.IsStarted, "")
	case e.Kind == Started:
		add(e.Container, startup.HasFailed, "could not be started")
	case e.Kind == Exited && e.Code == 0:
		add(e.Container, startup.IsCompleted, "")
	case e.Kind == Exited:
		add(e.Container, startup.HasFailed, "exit code %d", e.Code)
	case e.Kind == HookReturned && !e.OK:
		add(e.Container, startup.HookFailed, "%s", e.Which)
	case e.Kind == SandboxDied:
		for i, c := range before.c {
			if c.run == running {
				add(before.name(i), startup.HasFailed, "the sandbox died")
			}
		}
	case e.Kind == SandboxReady && e.OK && before.sandbox == deadSandbox:
		t = append(t, startup.Event{What: startup.NewSandbox, At: at})
	case e.Kind == Deleted:
		t = append(t, startup.Event{What: startup.PodDeleted, At: at})
	}
	for _, a := range answer {
		at = a.At
		switch {
		case a.Kind == Stop:
			add(a.Container, startup.IsStopping, "")
		case a.Kind == BackOff:
			add(a.Container, startup.IsWaiting, "%s, %s", a.Reason, a.Timeout)
		case a.Kind == Publish && a.Status.HasIP && !before.status.HasIP:
			t = append(t, startup.Event{What: startup.HasAddress, At: at})
		}
	}
	return t
}
