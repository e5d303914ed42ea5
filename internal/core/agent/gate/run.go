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

// A gate is one run. All of its fields belong to the goroutine of Run: other goroutines
// send it functions.
type gate struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	events chan func()
	timer  *time.Timer

	writer *state.Writer
	watch  *state.Watch

	since       time.Time         // it waits since then
	answers     map[string]answer // by container
	pollers     map[string]*poller
	stopPolling context.CancelFunc
	printedAt   time.Time // when the last line about the wait was printed
	said        string    // what it said of the dependencies
	changes     int       // lines that a new reason caused
	stale       bool      // the record could not be published; it is tried again

	child *child
	base  map[string]int // by dependency: how often it had started
	stop  stopping
	over  bool
	code  int
}

// Run waits, runs the command, and returns the exit status for the container. When ctx
// ends, it is as if SIGTERM came.
//
// It takes over the signals of the process, and collects its orphans.
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
	g := &gate{o: o, events: make(chan func(), 16), timer: time.NewTimer(time.Hour), since: time.Now(), answers: map[string]answer{}}
	if g.watch, err = state.NewWatch(o.Place); err != nil {
		return nil, err
	}
	first := state.Record{Phase: state.Waiting, Restart: o.Restart, PreStop: o.PreStop}
	for _, e := range o.After {
		first.Waited = append(first.Waited, state.Wait{For: condition(e)})
		if e.After != startup.Completed { // one that is done needs not wait
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
	g.startPolling()
	return g, nil
}

func (g *gate) close() {
	g.cancel()
	g.watch.Close()
	g.writer.Close()
}

// background runs f until it returns; its ctx ends with the gate.
func (g *gate) background(f func(context.Context)) { go f(g.ctx) }

// post makes f be called by the gate's own goroutine.
func (g *gate) post(f func()) {
	select {
	case g.events <- f:
	case <-g.ctx.Done():
	}
}

// after makes f be called after d, unless the gate is over by then.
func (g *gate) after(d time.Duration, f func()) {
	g.background(func(ctx context.Context) {
		select {
		case <-time.After(d):
			g.post(f)
		case <-ctx.Done():
		}
	})
}

// publish changes this container's record. A command that runs is not ended when that
// fails: the published record then counts as stale, until a later try succeeds.
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

// publishPause is between two tries: a volume that is full stays so for a while.
const publishPause = time.Second

func (g *gate) publishAgain() {
	g.after(publishPause, func() {
		if g.publish(func(*state.Record) {}); g.stale {
			g.publishAgain()
		}
	})
}

// note adds to the journal. A command that has not begun is the incarnation to come.
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

// end ends the gate by itself.
func (g *gate) end(code int, format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	g.o.Say(why)
	if code != 0 {
		g.o.Explain(why)
	}
	g.finish(code)
}

// finish publishes the end.
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
