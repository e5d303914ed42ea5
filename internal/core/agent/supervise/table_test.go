package supervise

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

var (
	states = []State{Idle, Starting, Serving, Restarting, Reviving, Draining, DrainDown, Stopping, Stopped}
	events = []Event{Begin, ChildReady, ChildEnded, ChildLost, BackoffElapsed, Terminate, Quit, Drained, GraceOver}
)

// Reasons why an event may be ignored.
const (
	once    = "Run begins once"
	ready   = "this child is ready already"
	noChild = "no child runs that could"
	noPause = "no pause is under way"
	noDrain = "no drain is under way"
	already = "stopping already"
	dying   = "the child is dying; SIGKILL cannot be ignored"
	ended   = "the end"
)

// ignored lists the pairs of state and event that the table leaves out on purpose.
var ignored = map[State]map[Event]string{
	Idle:       {ChildReady: noChild, ChildEnded: noChild, ChildLost: noChild, BackoffElapsed: noPause, Drained: noDrain, GraceOver: noDrain},
	Starting:   {Begin: once, BackoffElapsed: noPause, Drained: noDrain, GraceOver: noDrain},
	Serving:    {Begin: once, ChildReady: ready, BackoffElapsed: noPause, Drained: noDrain, GraceOver: noDrain},
	Restarting: {Begin: once, ChildReady: noChild, ChildEnded: noChild, ChildLost: noChild, Drained: noDrain, GraceOver: noDrain},
	Reviving:   {Begin: once, BackoffElapsed: noPause, Drained: noDrain, GraceOver: noDrain},
	Draining:   {Begin: once, BackoffElapsed: noPause, Terminate: already},
	DrainDown:  {Begin: once, ChildReady: noChild, ChildEnded: noChild, ChildLost: noChild, Terminate: already},
	Stopping:   {Begin: once, ChildReady: dying, BackoffElapsed: noPause, Terminate: already, Quit: already, Drained: dying, GraceOver: dying},
	Stopped:    {Begin: ended, ChildReady: ended, ChildEnded: ended, ChildLost: ended, BackoffElapsed: ended, Terminate: ended, Quit: ended, Drained: ended, GraceOver: ended},
}

func TestEveryPairIsInTheTableOrIgnoredOnPurpose(t *testing.T) {
	for _, s := range states {
		for _, e := range events {
			_, handled := Next(s, e)
			_, left := ignored[s][e]
			if handled == left {
				t.Errorf("%s, %s: in the table %v, ignored on purpose %v", s, e, handled, left)
			}
		}
	}
	if len(table) != len(states) {
		t.Errorf("the table has %d states, the test %d", len(table), len(states))
	}
}

// A world models the state and the effects of the actions so far. It determines which events can come
// next.
type world struct {
	state                                   State
	begun, child, ready, standby            bool
	pause, grace, draining, drained, exited bool
	graceOver, killed                       bool
	drains                                  bool // whether this child drains
}

// can returns the events that can come next in this world.
func (w world) can() []Event {
	out := []Event{Terminate, Quit}
	for e, possible := range map[Event]bool{
		Begin: !w.begun, ChildReady: w.child && !w.ready, ChildEnded: w.child, ChildLost: w.child,
		BackoffElapsed: w.pause, Drained: w.draining && !w.drained, GraceOver: w.grace && !w.graceOver,
	} {
		if possible {
			out = append(out, e)
		}
	}
	slices.Sort(out)
	return out
}

// after returns the world after event e, and an error if that world is not valid.
func (w world) after(e Event) (world, error) {
	before := w
	switch e {
	case Begin:
		w.begun = true
	case ChildReady:
		w.ready = true
	case ChildEnded, ChildLost:
		w.child, w.ready, w.drains = false, false, false
	case BackoffElapsed:
		w.pause = false
	case Drained:
		w.drained = true
	case GraceOver:
		w.graceOver = true
	}
	step, ok := Next(w.state, e)
	if !ok {
		return w, nil
	}
	w.state = step.To
	if drain := map[bool]State{true: Draining, false: DrainDown}[before.child]; e == Terminate && before.begun && w.state != drain {
		return w, fmt.Errorf("SIGTERM leads to %s", w.state)
	}
	for _, a := range step.Do {
		if w.exited {
			return w, fmt.Errorf("%s follows an exit", a)
		}
		switch a {
		case OpenStandby:
			w.standby = true
		case CloseStandby:
			w.standby = false
		case StartChild:
			if w.child {
				return w, fmt.Errorf("a second child beside the first")
			}
			w.child = true
		case KillChild:
			if !w.child {
				return w, fmt.Errorf("no child to kill")
			}
			w.killed = true
		case WaitBackoff:
			if w.child || w.pause {
				return w, fmt.Errorf("a pause beside a child or another pause")
			}
			w.pause = true
		case ArmGrace:
			if w.grace {
				return w, fmt.Errorf("grace twice")
			}
			w.grace = true
		case DrainChild:
			if !w.child || !w.ready {
				return w, fmt.Errorf("no ready child to drain")
			}
			w.drains = true
		case AwaitDrained:
			if w.draining {
				return w, fmt.Errorf("awaited twice")
			}
			w.draining = true
		case ExitOK, ExitFailed:
			w.exited = true
			if (a == ExitFailed) != (e == ChildLost && before.state != Stopping) {
				return w, fmt.Errorf("%s on %s", a, e)
			}
		default:
			return w, fmt.Errorf("action %q is unknown", a)
		}
	}
	return w, w.sane(before)
}

// sane checks the invariants that hold in every world; before is the world before the event.
func (w world) sane(before world) error {
	running := []State{Starting, Serving, Reviving, Draining, Stopping}
	switch {
	case before.state == Stopped:
		return fmt.Errorf("a step after the end")
	case w.exited != (w.state == Stopped):
		return fmt.Errorf("exited %v", w.exited)
	case w.child != slices.Contains(running, w.state):
		return fmt.Errorf("a child runs: %v", w.child)
	case w.state == Stopped && w.standby:
		return fmt.Errorf("the standby stays open")
	case w.pause != (w.state == Restarting || w.state == DrainDown) && w.state != Stopped:
		return fmt.Errorf("pause: %v", w.pause)
	case w.state != Stopped && w.state != Stopping && w.state != Idle && w.standby == w.ready:
		return fmt.Errorf("standby %v, ready %v", w.standby, w.ready)
	case (w.state == Draining || w.state == DrainDown) && !(w.grace && w.draining):
		return fmt.Errorf("drains with grace %v, awaited %v", w.grace, w.draining)
	case w.state == Draining && w.ready != w.drains:
		return fmt.Errorf("drains: ready %v, drains %v", w.ready, w.drains)
	case w.state == Stopping && !w.killed:
		return fmt.Errorf("stops without a kill")
	case (w.grace || w.draining) && !slices.Contains([]State{Draining, DrainDown, Stopping, Stopped}, w.state):
		return fmt.Errorf("back to serving after SIGTERM")
	}
	return nil
}

// reachable returns all worlds that events can lead to.
func reachable(t *testing.T) map[world]bool {
	t.Helper()
	seen := map[world]bool{}
	queue := []world{{state: Idle}}
	for len(queue) > 0 {
		w := queue[0]
		queue = queue[1:]
		if seen[w] {
			continue
		}
		seen[w] = true
		for _, e := range w.can() {
			next, err := w.after(e)
			if err != nil {
				t.Fatalf("%s, %s -> %s: %v (%+v)", w.state, e, next.state, err, w)
			}
			queue = append(queue, next)
		}
	}
	return seen
}

func TestNoSequenceOfEventsLeadsAstray(t *testing.T) {
	seen := reachable(t)
	for _, s := range states {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), func(w world) bool { return w.state == s }) {
			t.Errorf("state %s is never reached", s)
		}
	}
	t.Logf("%d worlds", len(seen))
}

// After SIGTERM supervision ends, whatever else happens: the grace period ends, and then the child is killed.
func TestTerminateAlwaysLeadsToTheEnd(t *testing.T) {
	for w := range reachable(t) {
		if !w.begun {
			continue
		}
		at := w
		for _, e := range []Event{Terminate, GraceOver, ChildEnded} {
			if e == GraceOver && !at.grace || e == ChildEnded && !at.child {
				continue
			}
			var err error
			if at, err = at.after(e); err != nil {
				t.Fatal(err)
			}
		}
		// If the grace period was over before, the child was killed then.
		if at.state != Stopped {
			t.Errorf("from %+v SIGTERM leads to %+v", w, at)
		}
	}
}

func TestQuitEndsWithTheChild(t *testing.T) {
	for w := range reachable(t) {
		at, err := w.after(Quit)
		if err == nil && at.child {
			at, err = at.after(ChildEnded)
		}
		if err != nil || at.state != Stopped {
			t.Errorf("from %+v quit leads to %+v, %v", w, at, err)
		}
	}
}
