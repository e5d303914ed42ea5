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

	// Renew returns the command for the next start.
	Renew func(Command) Command

	// Grace is the longest time between a stop request and SIGKILL, even if AwaitDrained has
	// not returned.
	Grace time.Duration

	// Ready blocks until the child is ready, and then returns nil. It is called for each
	// child, and ctx ends with the child. An error goes to the journal, and the child never
	// counts as ready.
	Ready func(ctx context.Context) error

	// Standby accepts connections while no child is ready.
	Standby Standby

	// Drain asks a ready child to drain. It is called again for a child that is started
	// while draining.
	Drain func(ctx context.Context) error

	// AwaitDrained blocks until no child is needed any longer.
	AwaitDrained func(ctx context.Context)

	// Explain returns the reason why a child ended, and whether the next child would end
	// for the same reason.
	Explain func(Exit) (reason string, final bool)

	// Journal is called with every change, from any goroutine. It must not block.
	Journal func(Entry)

	// TerminationMessage is the file for the kubelet's termination message, written when
	// the child is given up; default: none.
	TerminationMessage string

	start   func(Command) (Child, *StartError) // default Start
	jitter  func() float64                     // default rand.Float64
	backoff backoff                            // default standard
}

// A Standby listens in the child's place. Close hands over: when it returns, new connections
// go to the child.
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

// An Entry of the journal is one change of state, or the error of an action.
type Entry struct {
	Time     time.Time
	Event    Event
	From, To State
	PID      int           // of the child, if one runs or has just ended
	Exit     *Exit         // set if a child ended
	Reason   string        // why the child ended, as far as known
	Pause    time.Duration // until the next start
	Err      error         // error of an action; the supervisor goes on
}

// A Result is the outcome of supervision.
type Result struct {
	Status int    // for the agent's own exit: 0 after a requested stop
	Reason string // if the status is not 0
	Exit   *Exit  // the last child's, if one ended
}

// A Supervisor keeps one child alive.
type Supervisor struct {
	o      Options
	events chan input
	state  atomic.Value // State

	mu    sync.Mutex
	child Child // nil: none runs
	ready bool  // whether the child is ready

	// Only Run's goroutine uses the fields below.
	history history
	readyAt time.Time
	standby bool
	last    *Exit
	reason  string
	pause   time.Duration
	ctx     context.Context
	tasks   sync.WaitGroup
}

// An input is an event with its data.
type input struct {
	event Event
	child Child // nil if the event concerns no child
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
	s := &Supervisor{o: o, events: make(chan input)}
	s.state.Store(Idle)
	return s
}

// State returns the current state. It may be called from any goroutine.
func (s *Supervisor) State() State { return s.state.Load().(State) }

// PID returns the running child's process ID; 0 if none runs.
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

// serving returns the child if it is ready, else nil.
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

// Run starts the child and returns when it is gone for good. Call it once. When the context stop
// ends, Run drains the child and then ends it, as on SIGTERM; when the context quit ends, Run kills
// the child at once.
func (s *Supervisor) Run(stop, quit context.Context) Result {
	ctx, cancel := context.WithCancel(context.WithoutCancel(stop))
	s.ctx = ctx
	terminate, leave := stop.Done(), quit.Done()
	pending := []input{{event: Begin}}
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
		case in := <-s.events:
			pending = append(pending, in)
		case <-terminate:
			terminate = nil
			pending = append(pending, input{event: Terminate})
		case <-leave:
			leave = nil
			pending = append(pending, input{event: Quit})
		}
	}
}

// release waits for the goroutines that Run has started. They end when s.ctx ends.
func (s *Supervisor) release() {
	done := make(chan struct{})
	go func() { s.tasks.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second): // a callback ignores its context
	}
}

// handle looks the event up in the table and carries out the actions. It returns the inputs
// that the actions caused at once, and a result if supervision has ended.
func (s *Supervisor) handle(in input) (caused []input, result *Result) {
	entry := Entry{Time: time.Now(), Event: in.event, From: s.State(), To: s.State(), PID: s.PID()}
	if in.event == ChildReady && in.child != s.running() {
		return nil, nil // the event concerns a child that has ended
	}
	if in.event == ChildEnded {
		in.event = s.exited(in.exit, &entry)
	}
	step, ok := Next(entry.From, in.event)
	if !ok {
		return nil, nil
	}
	if in.event == ChildReady {
		s.readyAt = entry.Time
		s.setReady()
	}
	entry.Event, entry.To = in.event, step.To
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

// exited records that the child has ended, and returns ChildEnded or ChildLost.
func (s *Supervisor) exited(e Exit, entry *Entry) Event {
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

// failed writes the termination message and returns the result.
func (s *Supervisor) failed() *Result {
	r := &Result{Status: s.last.Code(), Reason: s.reason, Exit: s.last}
	if s.o.TerminationMessage == "" {
		return r
	}
	// The file cannot be replaced by a rename: the kubelet mounts the file and not its directory.
	if err := os.WriteFile(s.o.TerminationMessage, []byte(Message(s.reason, s.last.Tail)), 0o644); err != nil {
		s.wrong(fmt.Errorf("writing the termination message: %w", err))
	}
	return r
}
