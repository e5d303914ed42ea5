package supervise

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// do carries out one action. It blocks only while the standby opens or closes.
func (s *Supervisor) do(a Action) (caused []input) {
	switch a {
	case OpenStandby, CloseStandby:
		s.setStandby(a == OpenStandby)
	case StartChild:
		return s.startChild()
	case KillChild:
		if c := s.running(); c != nil {
			c.Kill()
		}
	case WaitBackoff:
		s.after(s.pause, BackoffElapsed)
	case ArmGrace:
		s.after(s.o.Grace, GraceOver)
	case DrainChild:
		s.drain()
	case AwaitDrained:
		s.awaitDrained()
	}
	return nil
}

func (s *Supervisor) setStandby(open bool) {
	if s.standby == open {
		return
	}
	s.standby = open
	change, what := s.o.Standby.Close, "closing"
	if open {
		change, what = s.o.Standby.Open, "opening"
	}
	if err := change(); err != nil {
		s.wrong(fmt.Errorf("%s the standby: %w", what, err))
	}
}

// wrong writes the error of a failed effect to the journal. The state does not change.
func (s *Supervisor) wrong(err error) {
	s.o.Journal(Entry{Time: time.Now(), From: s.State(), To: s.State(), PID: s.PID(), Err: err})
}

func (s *Supervisor) startChild() []input {
	c, err := s.o.start(s.o.Renew(s.o.Command))
	if err != nil {
		return []input{{event: ChildEnded, exit: Exit{Start: err}}}
	}
	s.mu.Lock()
	s.child = c
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(s.ctx)
	s.tasks.Go(func() {
		defer cancel()
		select {
		case <-c.Done():
			s.send(input{event: ChildEnded, child: c, exit: c.Exit()})
		case <-s.ctx.Done():
		}
	})
	s.tasks.Go(func() {
		if err := s.o.Ready(ctx); err != nil {
			if ctx.Err() == nil {
				s.wrong(fmt.Errorf("waiting for the child to be ready: %w", err))
			}
			return
		}
		s.send(input{event: ChildReady, child: c})
	})
	return nil
}

// send hands an input to Run. It returns without doing so if Run has ended.
func (s *Supervisor) send(in input) {
	select {
	case s.events <- in:
	case <-s.ctx.Done():
	}
}

func (s *Supervisor) after(d time.Duration, e Event) {
	s.tasks.Go(func() {
		select {
		case <-time.After(d):
			s.send(input{event: e})
		case <-s.ctx.Done():
		}
	})
}

// drain asks the child to drain. It ignores errors once the state is Stopping: the child is
// killed then, because its connections are gone or the grace period is over.
func (s *Supervisor) drain() {
	s.tasks.Go(func() {
		if err := s.o.Drain(s.ctx); err != nil && s.ctx.Err() == nil && s.State() != Stopping {
			s.wrong(fmt.Errorf("draining the child: %w", err))
		}
	})
}

func (s *Supervisor) awaitDrained() {
	s.tasks.Go(func() {
		s.o.AwaitDrained(s.ctx)
		s.send(input{event: Drained})
	})
}

// replaceTime is the time between the SIGTERM and the SIGKILL of a child that is replaced.
const replaceTime = 2 * time.Second

// Replace ends the child. The supervisor then starts the next one, as after any other end.
func (s *Supervisor) Replace() {
	if c := s.running(); c != nil {
		if err := c.Signal(unix.SIGTERM); err != nil {
			s.wrong(err)
		}
		time.AfterFunc(replaceTime, c.Kill)
	}
}

// Forward passes signals on to the child until ctx ends: SIGUSR1, on which Envoy reopens its
// log files, and others that must not end the agent. A signal that arrives while no child is
// ready is dropped: it would end a child that does not handle it yet, and a child that
// starts opens its files anyway.
func (s *Supervisor) Forward(ctx context.Context, signals ...os.Signal) {
	got := make(chan os.Signal, 8)
	signal.Notify(got, signals...)
	defer signal.Stop(got)
	for {
		select {
		case sig := <-got:
			if c := s.serving(); c != nil {
				if err := c.Signal(sig); err != nil {
					s.wrong(err)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}
