package supervise

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a supervisor. All but TerminationMessage are required.
type Options struct {
	Command Command

	// Renew returns what to start this time.
	Renew func(Command) Command

	// Grace is from Stop to SIGKILL, whatever AwaitDrained says.
	Grace time.Duration

	// Ready returns nil once this child is ready, and not before. It is called anew for
	// each child, and ctx ends with the child. An error goes to the journal and leaves the
	// child unready.
	Ready func(ctx context.Context) error

	// Standby takes connections while no child can.
	Standby Standby

	// Drain makes a ready child drain. It is called again for a child that is started
	// while draining.
	Drain func(ctx context.Context) error

	// AwaitDrained returns when no child is needed any longer.
	AwaitDrained func(ctx context.Context)

	// Explain says why a child ended, and whether the next one would end so too.
	Explain func(Exit) (reason string, final bool)

	// Journal gets every change, from any goroutine. It must not block.
	Journal func(Entry)

	// TerminationMessage is the file for the kubelet's termination message, written when
	// the child is given up; default: none.
	TerminationMessage string

	start   func(Command) (Child, *StartError) // default Start
	jitter  func() float64                     // default rand.Float64
	backoff backoff                            // default standard
}

// A Standby listens in the child's place. Close hands over: it returns when the child
// gets what comes from now on.
type Standby interface {
	Open() error
	Close() error
}

// A Child is a running child; [*Process] is one.
type Child interface {
	PID() int
	Done() <-chan struct{}
	Exit() Exit
	Signal(os.Signal) error
	Kill()
}

// An Entry of the journal is one change of state, or an effect that went wrong.
type Entry struct {
	Time     time.Time
	Event    Event
	From, To State
	PID      int           // of the child, if one runs or has just ended
	Exit     *Exit         // how a child ended
	Reason   string        // why, as far as known
	Pause    time.Duration // until the next start
	Err      error         // an effect that went wrong; the supervisor goes on
}

// A Result is how supervision ended.
type Result struct {
	Status int    // for the agent's own exit: 0 after a requested stop
	Reason string // if the status is not 0
	Exit   *Exit  // the last child's, if one ended
}

// A Supervisor keeps one child alive.
type Supervisor struct {
	o      Options
	events chan happening
	state  atomic.Value // State

	mu    sync.Mutex
	child Child // nil: none runs
	ready bool  // the child is

	// What follows belongs to Run.
	history history
	readyAt time.Time
	standby bool
	last    *Exit
	reason  string
	pause   time.Duration
	ctx     context.Context
	tasks   sync.WaitGroup
}

// A happening is an event and what belongs to it.
type happening struct {
	event Event
	child Child // nil for events of no child
	exit  Exit
}

// New returns a supervisor that has started nothing.
func New(o Options) *Supervisor {
	if o.start == nil {
		o.start = func(c Command) (Child, *StartError) {
			p, err := Start(c)
			return p, err
		}
	}
	if o.jitter == nil {
		o.jitter = rand.Float64
	}
	o.backoff = cmp.Or(o.backoff, standard)
	s := &Supervisor{o: o, events: make(chan happening)}
	s.state.Store(Idle)
	return s
}

// State is where things stand.
func (s *Supervisor) State() State { return s.state.Load().(State) }

// PID is the running child's process ID; 0 if none runs.
func (s *Supervisor) PID() int {
	if c := s.running(); c != nil {
		return c.PID()
	}
	return 0
}

func (s *Supervisor) running() Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child
}

// serving is the child, if it is ready.
func (s *Supervisor) serving() Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return nil
	}
	return s.child
}

func (s *Supervisor) setReady() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = true
}

// Run starts the child and returns when it is gone for good. It is called once. The end
// of stop is SIGTERM: drain, then end; the end of quit ends it at once.
func (s *Supervisor) Run(stop, quit context.Context) Result {
	ctx, cancel := context.WithCancel(context.WithoutCancel(stop))
	s.ctx = ctx
	terminate, leave := stop.Done(), quit.Done()
	pending := []happening{{event: Begin}}
	for {
		for len(pending) > 0 {
			more, result := s.handle(pending[0])
			if result != nil {
				cancel()
				s.release()
				return *result
			}
			pending = append(pending[1:], more...)
		}
		select {
		case h := <-s.events:
			pending = append(pending, h)
		case <-terminate:
			terminate = nil
			pending = append(pending, happening{event: Terminate})
		case <-leave:
			leave = nil
			pending = append(pending, happening{event: Quit})
		}
	}
}

// release waits for what Run has started: each of them ends with s.ctx.
func (s *Supervisor) release() {
	done := make(chan struct{})
	go func() { s.tasks.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second): // a callback that ignores its context
	}
}

// handle takes one event through the table and carries the actions out. What they cause
// at once is returned; a result ends it all.
func (s *Supervisor) handle(h happening) (caused []happening, result *Result) {
	entry := Entry{Time: time.Now(), Event: h.event, From: s.State(), To: s.State(), PID: s.PID()}
	if h.event == ChildReady && h.child != s.running() {
		return nil, nil // of one that is gone
	}
	if h.event == ChildEnded {
		h.event = s.buried(h.exit, &entry)
	}
	step, ok := Next(entry.From, h.event)
	if !ok {
		return nil, nil
	}
	if h.event == ChildReady {
		s.readyAt = entry.Time
		s.setReady()
	}
	entry.Event, entry.To = h.event, step.To
	s.state.Store(step.To)
	s.o.Journal(entry)
	for _, a := range step.Do {
		switch a {
		case ExitOK:
			return nil, &Result{Exit: s.last}
		case ExitFailed:
			return nil, s.failed()
		}
		caused = append(caused, s.do(a)...)
	}
	return caused, nil
}

// buried records a child's end, and returns which event it is.
func (s *Supervisor) buried(e Exit, entry *Entry) Event {
	s.mu.Lock()
	s.child, s.ready = nil, false
	s.mu.Unlock()
	if !s.readyAt.IsZero() {
		e.Served = max(entry.Time.Sub(s.readyAt), 1)
	}
	s.readyAt = time.Time{}
	reason, final := "", e.Start != nil && e.Start.Final
	if e.Start == nil {
		reason, final = s.o.Explain(e)
	}
	pause, giveUp := s.history.ended(s.o.backoff, entry.Time, e.Served, s.o.jitter())
	s.last, s.pause, s.reason = &e, pause, cmp.Or(reason, e.String())
	if e.Start == nil && reason != "" {
		s.reason += " (" + e.String() + ")"
	}
	entry.PID, entry.Exit, entry.Pause = e.PID, &e, pause
	lost := final || giveUp != ""
	if giveUp != "" && !final {
		s.reason += "; given up: " + giveUp
	}
	entry.Reason = s.reason
	if lost {
		entry.Pause = 0
		return ChildLost
	}
	return ChildEnded
}

// failed writes the termination message and is the result.
func (s *Supervisor) failed() *Result {
	r := &Result{Status: s.last.Code(), Reason: s.reason, Exit: s.last}
	if s.o.TerminationMessage == "" {
		return r
	}
	// Not by rename: the kubelet mounts the file itself.
	if err := os.WriteFile(s.o.TerminationMessage, []byte(Message(s.reason, s.last.Tail)), 0o644); err != nil {
		s.wrong(fmt.Errorf("writing the termination message: %w", err))
	}
	return r
}
