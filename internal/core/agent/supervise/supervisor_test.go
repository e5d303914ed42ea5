package supervise

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A fake is a child without a process.
type fake struct {
	pid    int
	done   chan struct{}
	exit   Exit
	once   sync.Once
	signal []os.Signal
}

func (f *fake) PID() int              { return f.pid }
func (f *fake) Done() <-chan struct{} { return f.done }
func (f *fake) Exit() Exit            { <-f.done; return f.exit }
func (f *fake) Kill()                 { f.end(Exit{Signal: syscall.SIGKILL}) }

func (f *fake) Signal(s os.Signal) error {
	f.signal = append(f.signal, s)
	return nil
}

func (f *fake) end(e Exit) {
	f.once.Do(func() { e.PID = f.pid; f.exit = e; close(f.done) })
}

// A stage is a supervisor with fake children, in a synctest bubble.
type stage struct {
	*Supervisor
	stop, quit context.CancelFunc
	result     chan Result
	begin      time.Time

	mu       sync.Mutex
	children []*fake
	log      []string // the effects, each with the time since begin
	entries  []Entry
}

func (s *stage) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, time.Since(s.begin).String()+" "+what)
}

// lastChild returns the fake that was started last.
func (s *stage) lastChild() *fake {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.children[len(s.children)-1]
}

func (s *stage) Open() error  { s.note("standby opens"); return nil }
func (s *stage) Close() error { s.note("standby closes"); return nil }

// newSupervisor returns a supervisor whose effects s records; change edits its options.
func newSupervisor(s *stage, change func(*stage, *Options)) *Supervisor {
	o := Options{
		Standby: s, Grace: 20 * time.Second,
		Renew:        func(c Command) Command { return c },
		Ready:        func(ctx context.Context) error { return wait(ctx, 50*time.Millisecond) },
		Drain:        func(context.Context) error { s.note("drain"); return nil },
		AwaitDrained: func(ctx context.Context) { _ = wait(ctx, 5*time.Second) },
		Explain:      func(Exit) (string, bool) { return "", false },
		Journal:      func(e Entry) { s.mu.Lock(); defer s.mu.Unlock(); s.entries = append(s.entries, e) },
		jitter:       func() float64 { return 0.5 },
	}
	o.start = func(Command) (Child, *StartError) {
		s.note("child starts")
		s.mu.Lock()
		defer s.mu.Unlock()
		f := &fake{pid: len(s.children) + 1, done: make(chan struct{})}
		s.children = append(s.children, f)
		return f, nil
	}
	if change != nil {
		change(s, &o)
	}
	return New(o)
}

func newStage(t *testing.T, change func(*stage, *Options)) *stage {
	t.Helper()
	s := &stage{begin: time.Now(), result: make(chan Result, 1)}
	s.Supervisor = newSupervisor(s, change)
	stop, cancelStop := context.WithCancel(context.Background())
	quit, cancelQuit := context.WithCancel(context.Background())
	s.stop, s.quit = cancelStop, cancelQuit
	t.Cleanup(cancelStop)
	t.Cleanup(cancelQuit)
	go func() { s.result <- s.Run(stop, quit) }()
	synctest.Wait()
	return s
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *stage) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.log); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
}

func TestAChildThatDiesIsReplacedAndDrainedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		time.Sleep(time.Second)
		s.lastChild().end(Exit{Signal: syscall.SIGSEGV})
		time.Sleep(time.Second)
		s.stop()
		if r := <-s.result; r.Status != 0 {
			t.Errorf("result %+v", r)
		}
		s.expect(t, "0s standby opens", "0s child starts", "50ms standby closes",
			"1s standby opens", "1s child starts", "1.05s standby closes", "2s drain")
		if d := time.Since(s.begin); d != 7*time.Second {
			t.Errorf("ended after %v, want 5s of drain", d)
		}
		if s.State() != Stopped || s.PID() != 0 {
			t.Errorf("state %s, child %d", s.State(), s.PID())
		}
	})
}

func TestPausesBetweenChildrenThatNeverServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(s *stage, o *Options) {
			start := o.start
			o.start = func(c Command) (Child, *StartError) {
				f, err := start(c)
				f.(*fake).end(Exit{Status: 3, Tail: []string{"last words"}})
				return f, err
			}
			o.TerminationMessage = filepath.Join(t.TempDir(), "message")
			o.Explain = func(Exit) (string, bool) { return "unknown cause", false }
		})
		r := <-s.result
		if r.Status != 3 || !strings.Contains(r.Reason, "unknown cause (exit status 3)") || !strings.Contains(r.Reason, "8 times in a row") {
			t.Errorf("result %+v", r)
		}
		s.expect(t, "0s standby opens", "0s child starts", "0s child starts", "50ms child starts", "150ms child starts", "350ms child starts",
			"750ms child starts", "1.55s child starts", "2.55s child starts", "2.55s standby closes")
		raw, err := os.ReadFile(s.o.TerminationMessage)
		if err != nil || !strings.HasPrefix(string(raw), "unknown cause") || !strings.HasSuffix(string(raw), "\nlast words\n") {
			t.Errorf("termination message %q, %v", raw, err)
		}
	})
}

func TestAnEndThatWillRepeatIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(_ *stage, o *Options) {
			o.Explain = func(Exit) (string, bool) { return "configuration rejected", true }
		})
		s.lastChild().end(Exit{Status: 1})
		if r := <-s.result; r.Status != 1 || r.Reason != "configuration rejected (exit status 1)" {
			t.Errorf("result %+v", r)
		}
		if len(s.children) != 1 {
			t.Errorf("%d children", len(s.children))
		}
	})
}

func TestAChildThatCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := 3
		s := newStage(t, func(_ *stage, o *Options) {
			start := o.start
			o.start = func(c Command) (Child, *StartError) {
				if busy--; busy >= 0 {
					return nil, startError("x", syscall.ETXTBSY) // the file is being written: temporary
				}
				return start(c)
			}
		})
		time.Sleep(time.Second)
		if s.State() != Serving {
			t.Errorf("state %s", s.State())
		}
		s.lastChild().end(Exit{})
		s.quit()
		<-s.result
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(_ *stage, o *Options) {
			o.start = func(Command) (Child, *StartError) { return nil, startError("/nowhere", syscall.ENOENT) }
		})
		if r := <-s.result; r.Status != NotFound || r.Reason != "starting /nowhere: there is no such file" {
			t.Errorf("result %+v", r)
		}
	})
}

func TestAChildThatDiesWhileDrainingIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		time.Sleep(time.Second)
		s.stop()
		time.Sleep(time.Second)
		s.lastChild().end(Exit{Status: 139})
		if r := <-s.result; r.Status != 0 {
			t.Errorf("result %+v", r)
		}
		s.expect(t, "0s standby opens", "0s child starts", "50ms standby closes", "1s drain",
			"2s standby opens", "2s child starts", "2.05s standby closes", "2.05s drain")
		if d := time.Since(s.begin); d != 6*time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}

func TestGraceBoundsTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(_ *stage, o *Options) { o.AwaitDrained = func(ctx context.Context) { <-ctx.Done() } })
		time.Sleep(time.Second)
		s.stop()
		<-s.result
		if d := time.Since(s.begin); d != 21*time.Second {
			t.Errorf("ended after %v, want 20s of grace", d)
		}
	})
}

func TestStopBeforeReadyAndDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(_ *stage, o *Options) {
			o.Ready = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		})
		s.stop()
		if r := <-s.result; r.Status != 0 {
			t.Errorf("result %+v", r)
		}
		s.expect(t, "0s standby opens", "0s child starts", "5s standby closes") // the standby is open until then
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(_ *stage, o *Options) { o.AwaitDrained = func(context.Context) {} })
		s.stop()
		<-s.result
		s.expect(t, "0s standby opens", "0s child starts", "0s standby closes")
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(_ *stage, o *Options) { // the child gets ready while draining
			o.Ready = func(ctx context.Context) error { return wait(ctx, time.Second) }
		})
		s.stop()
		<-s.result
		s.expect(t, "0s standby opens", "0s child starts", "1s standby closes", "1s drain")
		if d := time.Since(s.begin); d != 5*time.Second {
			t.Errorf("ended after %v, want 5s", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(_ *stage, o *Options) {
			o.backoff = standard
			o.backoff.base, o.backoff.max = time.Minute, time.Minute
		})
		for range 2 {
			time.Sleep(time.Second)
			s.lastChild().end(Exit{Status: 1})
		}
		time.Sleep(time.Second)
		if s.State() != Restarting {
			t.Fatalf("state %s", s.State())
		}
		s.stop()
		<-s.result
		if d := time.Since(s.begin); d != 8*time.Second {
			t.Errorf("ended after %v, want 5s of drain for connections that wait", d)
		}
	})
}

// A child that is not ready gets no signal: it may not handle it yet, and would end.
func TestOnlyAReadyChildGetsSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		for _, want := range []bool{false, true} {
			if got := s.serving() != nil; got != want {
				t.Errorf("after %s a signal is passed on: %v", time.Since(s.begin), got)
			}
			time.Sleep(time.Second)
		}
		s.lastChild().end(Exit{Status: 1})
		synctest.Wait()
		if s.serving() != nil {
			t.Error("a signal is passed on to a child that is not ready yet")
		}
		s.quit()
		<-s.result
	})
}

func TestSignalsAreForwarded(t *testing.T) {
	listening, serving, ended := make(chan bool, 1), make(chan bool, 1), make(chan Exit, 1)
	s := newSupervisor(&stage{}, func(_ *stage, o *Options) {
		o.Command, o.start = child(t, "usr1"), nil
		o.Command.Line = func([]byte) { listening <- true }
		o.Ready = func(context.Context) error { <-listening; return nil }
		o.Explain = func(e Exit) (string, bool) { ended <- e; return "as requested", true }
		o.Journal = func(e Entry) {
			if e.To == Serving {
				serving <- true
			}
		}
	})
	// Without a handler, the signal would end the test if it came before Forward has begun.
	own := make(chan os.Signal, 1)
	signal.Notify(own, syscall.SIGUSR1)
	defer signal.Stop(own)
	go s.Forward(t.Context(), syscall.SIGUSR1)
	go s.Run(context.Background(), context.Background())
	<-serving
	for range 400 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		select {
		case e := <-ended:
			if e.Status != 7 {
				t.Errorf("the child ended: %v; want 7: it got the signal", e)
			}
			return
		case <-time.After(50 * time.Millisecond): // send again: Forward may not have begun
		}
	}
	t.Error("the child gets no signal")
}

func TestWhatGoesWrongAsideIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad")
		s := newStage(t, func(_ *stage, o *Options) {
			o.Drain = func(context.Context) error { return bad }
			o.Standby = broken{}
		})
		time.Sleep(time.Second)
		s.stop()
		if r := <-s.result; r.Status != 0 {
			t.Errorf("result %+v", r)
		}
		var got []string
		for _, e := range s.entries {
			if e.Err != nil {
				got = append(got, e.Err.Error())
			}
		}
		want := []string{"opening the standby: no port", "closing the standby: no port", "draining the child: bad"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("reported (-want +got):\n%s", diff)
		}
	})
}

type broken struct{}

func (broken) Open() error  { return errors.New("no port") }
func (broken) Close() error { return errors.New("no port") }

func TestTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		time.Sleep(time.Second)
		s.lastChild().end(Exit{Signal: syscall.SIGKILL, Tail: []string{"x"}})
		time.Sleep(time.Second)
		s.quit()
		<-s.result
		var got []string
		for _, e := range s.entries {
			got = append(got, strings.TrimSpace(string(e.From)+" > "+string(e.To)+": "+string(e.Event)+" "+e.Reason))
		}
		want := []string{"idle > starting: begin", "starting > serving: child ready", "serving > restarting: child ended killed by SIGKILL",
			"restarting > reviving: back-off elapsed", "reviving > serving: child ready", "serving > stopping: quit",
			"stopping > stopped: child ended killed by SIGKILL"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("journal (-want +got):\n%s", diff)
		}
		if e := s.entries[2]; e.PID != 1 || e.Exit == nil || e.Exit.Served != 950*time.Millisecond || len(e.Exit.Tail) != 1 {
			t.Errorf("the crash is %+v", e)
		}
	})
}

// The callback Ready may return after its child has ended and the next one runs. That event
// must not make the next child ready.
func TestAReadyEventOfADeadChildIsIgnored(t *testing.T) {
	s := newSupervisor(&stage{}, nil)
	dead, next := &fake{pid: 1}, &fake{pid: 2}
	s.child = next
	s.state.Store(Reviving)
	if caused, result := s.handle(input{event: ChildReady, child: dead}); s.State() != Reviving || s.serving() != nil || caused != nil || result != nil {
		t.Errorf("state %s, %v, %v", s.State(), caused, result)
	}
	s.handle(input{event: ChildReady, child: next})
	if s.State() != Serving || s.serving() != next {
		t.Errorf("state %s after the next child is ready", s.State())
	}
}
