package captures

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
)

const (
	// repairsAtOnce is the number of repairs that run at the same time, by workers. Captures of pods that start may run
	// beside them.
	repairsAtOnce = 2
	// A sandbox gets freeRepairs repairs within the window without delay, and then one after each slow interval. A run of
	// the agent that finds the capture unchanged is none.
	freeRepairs = 30
	window      = 10 * time.Minute
	slow        = time.Minute
	// A sandbox's agents run for freeTime within the window without delay, whatever they find, and then each follows after
	// pause times the time of the one before, up to slow. A run takes 30 ms with nftables.
	freeTime = 10 * time.Second
	pause    = 20
	// longRun is the time from which on a run is long. Sandboxes with a long run within the window have one worker
	// together.
	longRun = time.Second
	// After a failed repair, the next one follows after retryBase, doubled each time up to slow.
	retryBase = 100 * time.Millisecond
	// reportedAt is the number of failures in a row after which a capture counts as not in place, 1.5 s after the
	// first, or at once if it is not tried again soon. Before, another program may have locked the namespace for a moment.
	reportedAt = 4
	// runLimit limits a repair, which takes some 30 ms, and a second with iptables on a busy machine.
	runLimit = 15 * time.Second
	// sweeps is the interval at which sandboxes are checked that ended without a report.
	sweeps = time.Minute
)

// Code is the code of the finding about a capture that could not be kept in place.
const Code = "capture-not-in-place"

// repair is the state of a sandbox's repairs. The mutex of Captures guards it.
type repair struct {
	pod      string    // NAMESPACE/NAME, for people; empty: unknown
	due      time.Time // of the next run; zero: none is needed
	since    time.Time // time of the first change since the last run began
	running  bool
	runs     []run  // within the window, oldest first; if running, the last one has not ended
	failures int    // in a row
	reason   string // why the capture counts as not in place; empty: it is in place
}

// A run is a run of the agent, by a worker.
type run struct {
	began   time.Time
	took    time.Duration
	repairs bool // it found a change, or failed
}

// Stats contains numbers about the captures that are watched.
type Stats struct {
	Watched    int    // sandboxes
	NotInPlace int    // sandboxes whose capture could not be repaired, or is changed all the time
	Repairs    uint64 // captures that were written again
}

// Stats returns the present numbers.
func (c *Captures) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := Stats{Watched: c.watcher.Len(), Repairs: c.repairs.Load()}
	for _, s := range c.sandboxes {
		if s.reason != "" {
			out.NotInPlace++
		}
	}
	return out
}

// changed makes a sandbox due for a repair.
func (c *Captures) changed(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sandboxes[id]; s != nil {
		c.dueNow(s)
	}
}

// dueNow makes a sandbox due as soon as its runs allow.
func (c *Captures) dueNow(s *sandbox) {
	now := time.Now()
	if s.since.IsZero() {
		s.since = now
	}
	if s.due.IsZero() {
		s.due = s.allowed(now)
	}
	c.signal()
}

// allowed returns the time at which a sandbox may have its next run. It forgets the runs before the window.
func (r *repair) allowed(now time.Time) time.Time {
	r.runs = slices.DeleteFunc(r.runs, func(x run) bool { return now.Sub(x.began) > window })
	next := now
	if last, ok := r.exhausted(); ok {
		next = last.Add(slow)
	}
	if r.spent() >= freeTime {
		last := r.runs[len(r.runs)-1]
		if after := last.began.Add(last.took + min(pause*last.took, slow)); after.After(next) {
			next = after
		}
	}
	return next
}

// exhausted reports whether a sandbox had its free repairs, and when the last one began.
func (r *repair) exhausted() (last time.Time, is bool) {
	repairs := 0
	for _, x := range r.runs {
		if x.repairs {
			repairs++
			last = x.began
		}
	}
	return last, repairs >= freeRepairs
}

// spent returns the time that the runs within the window took.
func (r *repair) spent() (sum time.Duration) {
	for _, x := range r.runs {
		sum += x.took
	}
	return sum
}

// long reports whether a sandbox has a long run within the window, or the present one is.
func (r *repair) long(now time.Time) bool {
	return slices.ContainsFunc(r.runs, func(x run) bool { return x.took > longRun }) ||
		r.running && now.Sub(r.runs[len(r.runs)-1].began) > longRun
}

// ran records the end of a run.
func (r *repair) ran(now time.Time, repairs bool) {
	last := &r.runs[len(r.runs)-1]
	r.running, last.took, last.repairs = false, now.Sub(last.began), repairs
	// A change during the run set the time of the next run without knowledge of this run's length.
	if after := r.allowed(now); !r.due.IsZero() && after.After(r.due) {
		r.due = after
	}
}

func (c *Captures) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Captures) isDue(s *sandbox) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !s.due.IsZero()
}

// begins records that the agent is about to run: it handles all changes until now. It returns the time of the first
// of them.
func (c *Captures) begins(s *sandbox) (since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since = s.since
	s.due, s.since = time.Time{}, time.Time{}
	return since
}

// ends records the result of a run. It arms the watch of a capture that is proven; one that failed is due again.
func (c *Captures) ends(s *sandbox, r report, since time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sandboxes[s.id] != s { // it has ended meanwhile
		c.watcher.Remove(s.id)
		return
	}
	if err == nil && r.Backend == "" { // there is nothing to watch
		c.watcher.Remove(s.id)
		s.failures = 0
		return
	}
	if err == nil {
		// The agent's own changes need no other run, if there were no others.
		if !r.Unchanged && (r.Backend != capture.NFTables || !c.watcher.Once(s.id)) {
			c.dueNow(s)
		}
		err = c.watcher.Arm(s.id, strings.Contains(r.Families, capture.IPv6.String()))
	}
	if err == nil {
		s.failures = 0
		return
	}
	c.watcher.Remove(s.id)
	c.again(s, since)
}

// again makes a sandbox due after a failure.
func (c *Captures) again(s *sandbox, since time.Time) {
	s.failures++
	s.since, s.due = since, time.Now().Add(min(retryBase<<min(s.failures-1, 16), slow))
	c.signal()
}

// Serve watches the captured sandboxes and repairs their captures until ctx ends.
func (c *Captures) Serve(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range repairsAtOnce {
		all.Go(func() { c.work(ctx, log) })
	}
	all.Go(func() { c.sweep(ctx, log) })
	return c.watcher.Run(ctx, c.changed)
}

// work repairs one sandbox after another.
func (c *Captures) work(ctx context.Context, log *slog.Logger) {
	for ctx.Err() == nil {
		s, since, wait := c.next(time.Now())
		if s != nil {
			c.repair(ctx, s, since, log)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-c.wake:
		}
		timer.Stop()
	}
}

// next takes the sandbox that is due and whose runs took the least time, so that a sandbox whose containers change its
// rules all the time does not delay another one. Those with long runs get one worker together, so that they cannot hold
// all. If none is due, it returns the time to wait.
func (c *Captures) next(now time.Time) (chosen *sandbox, since time.Time, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait = slow
	held := false // a sandbox with long runs has a worker
	for _, s := range c.sandboxes {
		held = held || s.running && s.long(now)
	}
	better := func(a, b *sandbox) bool {
		if x, y := a.spent(), b.spent(); x != y {
			return x < y
		}
		return a.due.Before(b.due)
	}
	for _, s := range c.sandboxes { // any order: of two that are equally good, either may be first
		if s.due.IsZero() || s.running {
			continue
		}
		if until := s.due.Sub(now); until > 0 {
			wait = min(wait, until)
		} else if (!held || !s.long(now)) && (chosen == nil || better(s, chosen)) {
			chosen = s
		}
	}
	if chosen != nil {
		chosen.running = true
		chosen.runs = append(chosen.runs, run{began: now})
		since = chosen.since
		c.signal() // for the others that are due
	}
	return chosen, since, wait
}

// repair runs the agent for a sandbox, and reports the result.
func (c *Captures) repair(ctx context.Context, s *sandbox, since time.Time, log *slog.Logger) {
	if s.lock(ctx) != nil {
		return
	}
	defer s.unlock()
	if !exists(s.namespace) {
		c.Forget(s.id)
		return
	}
	limited, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("it took more than %s", runLimit))
	defer cancel()
	var r report
	c.mu.Lock()
	failed := s.failures > 0 // a run that failed may have put back what was there
	c.mu.Unlock()
	err := cmp.Or(apart(s.namespace), unlocked(s.namespace))
	if err == nil {
		r, err = c.prove(limited, s)
	} else {
		c.mu.Lock()
		c.again(s, since)
		c.mu.Unlock()
	}
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	repaired := failed || !r.Unchanged
	s.ran(now, err != nil || repaired)
	c.signal() // it may be due again, and no other worker has taken it
	log = log.With("pod", s.pod, "sandbox", s.id)
	_, exhausted := s.exhausted()
	switch {
	case err != nil && (s.failures >= reportedAt || s.due.Sub(now) > slow/2):
		s.notInPlace(err.Error(), log)
	case err != nil:
		log.Info("capture not repaired yet", "again", s.due.Sub(now), "error", err)
	case exhausted:
		s.notInPlace(fmt.Sprintf("it was changed %d times within %s: from now on it is repaired once within %s", freeRepairs, window, slow), log)
	case s.reason != "":
		s.inPlace(log)
	}
	if err == nil && r.Backend != "" && repaired {
		c.repairs.Add(1)
		log.Warn("capture repaired", "after", now.Sub(since))
	}
}

// notInPlace reports, once, that a capture could not be kept in place.
func (r *repair) notInPlace(reason string, log *slog.Logger) {
	if r.reason == "" {
		log.Error("capture not in place", "code", Code, "reason", reason)
	}
	r.reason = reason
}

func (r *repair) inPlace(log *slog.Logger) {
	r.reason = ""
	log.Info("capture in place again")
}

// sweep forgets sandboxes whose end was not reported, and reports captures that were not changed any more.
func (c *Captures) sweep(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(sweeps)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.tidy(now, log)
		}
	}
}

func (c *Captures) tidy(now time.Time, log *slog.Logger) {
	c.mu.Lock()
	all := make([]*sandbox, 0, len(c.sandboxes))
	for _, s := range c.sandboxes { // any order: each is handled by itself
		all = append(all, s)
		if n := len(s.runs); s.reason != "" && s.due.IsZero() && n > 0 && now.Sub(s.runs[n-1].began) >= slow {
			s.inPlace(log.With("pod", s.pod, "sandbox", s.id))
		}
	}
	c.mu.Unlock()
	for _, s := range all {
		if !s.tryLock() { // the agent runs in it
			continue
		}
		if s.namespace != "" && c.watcher.Gone(s.id, s.namespace) {
			c.Forget(s.id)
		}
		s.unlock()
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// unlocked returns an error if another process has locked a network namespace, as captures do. The agent would wait
// for it, and others for the agent.
func unlocked(namespace string) error {
	f, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("another process has locked the network namespace")
	}
	return nil
}
