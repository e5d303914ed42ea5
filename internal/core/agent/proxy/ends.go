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

// shown is the maximum number of Envoy's last lines that are logged again when Envoy has ended. Lines after the
// first one of a crash report are left out: up to 64 stack frames, and the state of the request or message in
// progress, which can be long. Each line was also logged when Envoy wrote it.
const shown = 16

func shownTail(lines []string) []string {
	crash := slices.IndexFunc(lines, func(line string) bool { return envoy.ParseLine([]byte(line)).Crash() })
	if crash >= 0 {
		lines = lines[:crash+1]
	}
	return lines[max(0, len(lines)-shown):]
}

// entry logs and counts an entry of the supervisor's journal.
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
	if e.Event == supervise.Terminate && !a.leaving.replaced() {
		a.leaving.begin()
	}
	unrequested := e.Exit != nil && e.From != supervise.Stopping && !a.renewal.replacing.CompareAndSwap(true, false)
	a.ends.take(e, unrequested)
	switch {
	case e.Err != nil:
		a.log.Warn("proxy", append(args, "error", e.Err)...)
		a.journal.Fail("proxy "+string(e.To), e.Err.Error())
	case unrequested:
		a.log.Error("proxy ended", append(args, "how", e.Exit.String(), "pause", e.Pause, "tail", shownTail(e.Exit.Tail))...)
		a.journal.Fail("proxy ended", e.Reason) // the reason contains how Envoy ended
	default:
		a.log.Info("proxy", append(args, "event", string(e.Event))...)
		a.journal.Note("proxy "+string(e.To), string(e.Event))
	}
}

// ends counts Envoy's unrequested ends and its restarts. The zero value is ready to use.
type ends struct {
	mu       sync.Mutex
	how      map[string]uint64
	restarts uint64
}

// Values of the label how: Envoy exited with a status, could not be started, or was ended by a
// signal. Signals in the map signals have a value of their own.
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

// metrics returns a counter for each value of how, also while it is 0, so that the first end is an
// increase of an existing series.
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
	return append(out, counter("outrider_agent_envoy_restarts_total", "Starts of Envoy in place of one that ended.", count(func() uint64 { return s.restarts })))
}
