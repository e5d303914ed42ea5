package proxy

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"syscall"

	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/internal/core/agent/supervise"
)

// shown is how many of Envoy's last lines are logged with its end. What follows the line of a crash is not
// among them: up to 64 frames, and the state of the request or message in hand, as long as it may be.
// Each was logged when it was written.
const shown = 16

func shownTail(lines []string) []string {
	crash := slices.IndexFunc(lines, func(line string) bool { return envoy.ParseLine([]byte(line)).Crash() })
	if crash >= 0 {
		lines = lines[:crash+1]
	}
	return lines[max(0, len(lines)-shown):]
}

// entry logs and counts what the supervisor reports.
func (a *agent) entry(e supervise.Entry) {
	args := []any{"state", string(e.To)}
	if e.PID != 0 {
		args = append(args, "pid", e.PID)
	}
	if e.Reason != "" {
		args = append(args, "reason", e.Reason)
	}
	if e.Event == supervise.ChildReady {
		a.leaving.served.Store(true)
	}
	unrequested := e.Exit != nil && e.From != supervise.Stopping && !a.renewal.replacing.CompareAndSwap(true, false)
	a.ends.take(e, unrequested)
	switch {
	case e.Err != nil:
		a.log.Warn("proxy", append(args, "error", e.Err)...)
		a.journal.Fail("proxy "+string(e.To), e.Err.Error())
	case unrequested:
		a.log.Error("proxy ended", append(args, "how", e.Exit.String(), "pause", e.Pause, "tail", shownTail(e.Exit.Tail))...)
		a.journal.Fail("proxy ended", e.Reason) // which has how, too
	default:
		a.log.Info("proxy", append(args, "event", string(e.Event))...)
		a.journal.Note("proxy "+string(e.To), string(e.Event))
	}
}

// ends counts unrequested ends of Envoy, and what was done about it. The zero
// value is one that has counted nothing.
type ends struct {
	mu       sync.Mutex
	how      map[string]uint64
	restarts uint64
}

// How an Envoy ends, as a label: by a status, not at all since it could not be started, or by
// a signal. Some signals say what happened.
const (
	exited      = "exit"
	neverBegan  = "not-started"
	otherSignal = "signal"
)

var signals = map[syscall.Signal]string{
	syscall.SIGABRT: "SIGABRT", syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE", syscall.SIGILL: "SIGILL",
	syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV", syscall.SIGTERM: "SIGTERM",
}

func ending(e *supervise.Exit) string {
	switch {
	case e.Start != nil:
		return neverBegan
	case e.Signal == 0:
		return exited
	}
	return cmp.Or(signals[e.Signal], otherSignal)
}

func (s *ends) take(e supervise.Entry, unrequested bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if unrequested {
		if s.how == nil {
			s.how = map[string]uint64{}
		}
		s.how[ending(e.Exit)]++
	}
	if e.Event == supervise.BackoffElapsed {
		s.restarts++
	}
}

// metrics has each ending from the start, so that the first is a step of the counter.
func (s *ends) metrics() []status.Metric {
	count := func(of func() uint64) func() float64 {
		return func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(of())
		}
	}
	var out []status.Metric
	for i, how := range append([]string{exited, neverBegan, otherSignal}, slices.Sorted(maps.Values(signals))...) {
		m := status.Metric{Name: `outrider_agent_envoy_ends_total{how="` + how + `"}`, Counter: true,
			Value: count(func() uint64 { return s.how[how] })}
		if i == 0 {
			m.Help = "Ends of Envoy that were not requested, by its exit or the signal."
		}
		out = append(out, m)
	}
	return append(out, status.Metric{Name: "outrider_agent_envoy_restarts_total", Counter: true,
		Help: "Starts of Envoy in place of one that ended.", Value: count(func() uint64 { return s.restarts })})
}
