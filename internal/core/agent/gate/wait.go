package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
)

// fresh is the largest age of an answer when the gate opens: the container must be healthy at that
// moment.
const fresh = 250 * time.Millisecond

// lookWaiting starts the command if no edge blocks at this moment.
func (g *gate) lookWaiting() {
	if g.mainsAreOver() {
		g.end(0, "%s does not start: %s ended for good", g.o.Place.Container, strings.Join(g.o.HelperOf, ", "))
		return
	}
	waited := time.Since(g.since)
	var holding []blocked
	waits := make([]state.Wait, 0, len(g.o.After))
	for _, e := range g.o.After {
		seen := g.see(e)
		d, why := decide(e, seen, g.polls.answer(e.From), waited)
		w := state.Wait{For: condition(e)}
		switch {
		case d.Open():
			w.Took, w.By = waited, why
		case d == startup.Blocked:
			holding = append(holding, blocked{e, seen})
		default:
			g.end(GaveUp, "%s waited %s for %s and gave up: %s", g.o.Place.Container, e.Timeout, condition(e), g.missing(e, seen))
			return
		}
		waits = append(waits, w)
	}
	switch {
	case len(holding) > 0:
		g.noteWaits(waits)
		g.sayWaiting(waited, holding)
		g.timer.Reset(g.nextLook(waited))
	case g.pollAgain():
	default:
		g.begin(waits)
	}
}

// see reads the record of a dependency. It watches for the death of an optional dependency only:
// any other death cannot open the gate.
func (g *gate) see(e startup.Edge) state.Seen {
	look := g.watch.Read
	if e.Optional {
		look = g.watch.See
	}
	s, err := look(e.From)
	if err != nil && g.lines.silent() > sayAtMost {
		g.lines.at = time.Now()
		g.o.Say(err.Error())
	}
	return s
}

// noteWaits publishes which waits have ended.
func (g *gate) noteWaits(waits []state.Wait) {
	waits = g.firstEnds(waits)
	if !slices.Equal(waits, g.writer.Record().Waited) {
		g.publish(func(r *state.Record) { r.Waited = waits })
	}
}

// firstEnds restores, for each wait that had already ended earlier, the time and the reason of that first end.
func (g *gate) firstEnds(waits []state.Wait) []state.Wait {
	for i, before := range g.writer.Record().Waited {
		if before.By != "" && waits[i].By != "" {
			waits[i] = before
		}
	}
	return waits
}

// blocked is an edge that keeps the command from starting.
type blocked struct {
	startup.Edge
	seen state.Seen
}

// sayWaiting prints the edges that block, and why their dependencies are not ready.
func (g *gate) sayWaiting(waited time.Duration, holding []blocked) {
	if g.lines.tooEarly(waited) {
		return // the reasons are not read: some are in files
	}
	var words []string
	for _, b := range holding {
		words = append(words, fmt.Sprintf("%s (%s)", condition(b.Edge), g.missing(b.Edge, b.seen)))
	}
	if text := strings.Join(words, ", "); g.lines.due(waited, text) {
		g.o.Say(fmt.Sprintf("%s waits since %s until %s", g.o.Place.Container, waited.Round(time.Second), text))
	}
}

// nextLook returns the time after which the gate reads the records again if there is no event.
func (g *gate) nextLook(waited time.Duration) time.Duration {
	next := g.o.SecondLook
	for _, e := range g.o.After {
		if e.Timeout > waited {
			next = min(next, e.Timeout-waited)
		}
	}
	return next
}

// begin starts the command and then publishes that it runs, so that dependents can rely on it.
func (g *gate) begin(waits []state.Wait) {
	g.polls.stop()
	waits = g.firstEnds(waits)
	for _, e := range g.o.After {
		if e.OnRestart != startup.Ignore {
			seen, _ := g.watch.Read(e.From)
			g.base[e.From] = seen.Starts
		}
	}
	if err := g.startChild(); err != nil {
		g.end(err.Status, "%s", err.Error())
		return
	}
	g.note(startup.IsStarted, waitedText(waits))
	g.publish(func(r *state.Record) {
		r.Phase, r.StartingUp, r.Early, r.Waited = state.Running, g.o.StartupProbe != nil, g.o.LivenessDelay > 0, waits
		r.Starts++
	})
	if !g.lines.at.IsZero() {
		g.o.Say(fmt.Sprintf("%s starts after %s", g.o.Place.Container, time.Since(g.since).Round(time.Millisecond)))
	}
	g.watchHealth()
	g.look() // from here on a helper watches the containers that it helps
}

// waitedText describes, for each wait, how long it took and what ended it.
func waitedText(waits []state.Wait) string {
	var out []string
	for _, w := range waits {
		out = append(out, fmt.Sprintf("%s after %s (%s)", w.For, w.Took.Round(time.Millisecond), w.By))
	}
	return strings.Join(out, ", ")
}
