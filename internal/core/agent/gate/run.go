package gate

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/agent/supervise"
	"outrider.dev/startup"
)

// A gate is one run of a container. Only the goroutine of Run uses its fields: other
// goroutines send functions to it.
type gate struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	events chan func()
	timer  *time.Timer

	writer *state.Writer
	watch  *state.Watch

	since time.Time // start of the wait
	polls polling
	lines lines
	stale bool // the record could not be published; another try is due

	child *child
	base  starts
	stop  stopping
	over  bool
	code  int
}

// Run waits for the dependencies, runs the command, and returns the exit status for the
// container. The end of ctx has the effect of SIGTERM.
//
// While it runs, it handles the signals of this process and reaps orphaned processes.
func Run(ctx context.Context, o Options) int {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, forwarded()...)
	defer signal.Stop(signals)
	g, err := newGate(o)
	if err != nil {
		o.Say(err.Error())
		o.Explain(err.Error())
		return Unusable
	}
	defer g.close()
	g.background(func(ctx context.Context) {
		if err := supervise.Reap(ctx); err != nil {
			g.post(func() { g.o.Say(err.Error()) })
		}
	})
	g.look()
	done := ctx.Done()
	for !g.over {
		select {
		case s := <-signals:
			g.signal(s.(syscall.Signal))
		case <-done:
			done = nil
			g.signal(syscall.SIGTERM)
		case f := <-g.events:
			f()
		case <-g.watch.C:
			g.look()
		case <-g.timer.C:
			g.look()
		}
	}
	return g.code
}

func newGate(o Options) (*gate, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	g := &gate{o: o, events: make(chan func(), 16), timer: time.NewTimer(time.Hour), since: time.Now(), base: starts{}}
	if g.watch, err = state.NewWatch(o.Place); err != nil {
		return nil, err
	}
	first := state.Record{Phase: state.Waiting, Restart: o.Restart, PreStop: o.PreStop}
	for _, e := range o.After {
		first.Waited = append(first.Waited, state.Wait{For: condition(e)})
		if e.After != startup.Completed { // a completed dependency has nothing left to stop
			first.After = append(first.After, e.From)
		}
	}
	if g.writer, err = state.Open(o.Place, first); err != nil {
		g.watch.Close()
		return nil, err
	}
	g.o.Place = g.writer.Place()
	g.note(startup.IsWaiting, "")
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.polls = g.startPolling()
	return g, nil
}

func (g *gate) close() {
	g.cancel()
	g.watch.Close()
	g.writer.Close()
}

// background runs f in a new goroutine. The context of f ends with the gate.
func (g *gate) background(f func(context.Context)) { go f(g.ctx) }

// post queues f for the gate's goroutine, which calls it.
func (g *gate) post(f func()) {
	select {
	case g.events <- f:
	case <-g.ctx.Done():
	}
}

// after calls [gate.post] for f once the time d has passed, unless the gate is over by then.
func (g *gate) after(d time.Duration, f func()) {
	g.background(func(ctx context.Context) {
		select {
		case <-time.After(d):
			g.post(f)
		case <-ctx.Done():
		}
	})
}

// publish changes this container's record. If that fails, the command goes on, publish is tried
// again, and readers take this container for dead until a try succeeds.
func (g *gate) publish(change func(*state.Record)) {
	err := g.writer.Update(change)
	if err == nil {
		g.stale = false
		return
	}
	if g.stale {
		return // the next try is due
	}
	g.stale = true
	g.o.Say(err.Error())
	g.publishAgain()
}

// publishPause is the pause between two tries: a full volume stays full for a while.
const publishPause = time.Second

func (g *gate) publishAgain() {
	g.after(publishPause, func() {
		if g.publish(func(*state.Record) {}); g.stale {
			g.publishAgain()
		}
	})
}

// note adds an entry to the journal. Incarnations count from 0; before the command begins, an
// entry has the number of the incarnation to come.
func (g *gate) note(what startup.What, detail string) {
	n := g.writer.Record().Starts
	if g.child != nil && what != startup.IsStarted {
		n--
	}
	g.writer.Note(what, n, detail)
}

// look acts on the records of the other containers.
func (g *gate) look() {
	switch {
	case g.over:
	case g.child == nil:
		g.lookWaiting()
	default:
		g.lookRunning()
	}
}

// end ends the gate by the gate's own decision, and prints the reason.
func (g *gate) end(code int, format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	g.o.Say(why)
	if code != 0 {
		g.o.Explain(why)
	}
	g.finish(code)
}

// finish publishes that the container has ended, and ends Run.
func (g *gate) finish(code int) {
	g.over, g.code = true, code
	if code == 0 {
		g.note(startup.IsCompleted, "")
	} else {
		g.note(startup.HasFailed, fmt.Sprint("status ", code))
	}
	g.publish(func(r *state.Record) {
		r.Phase, r.Code = state.Ended, code
		r.Healthy, r.StartingUp, r.StartedUp, r.Early = false, false, false, false
		r.Completed = r.Completed || code == 0
	})
}
