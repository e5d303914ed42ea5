package captures

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"outrider.dev/build/commands"
	"outrider.dev/test/buffer"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// take takes the next sandbox, whose run then takes a while. It returns its ID, or the time to wait.
func (c *Captures) take(took time.Duration, repairs bool) (id string, wait time.Duration) {
	s, _, wait := c.next(time.Now())
	if s == nil {
		return "", wait
	}
	s.due, s.since = time.Time{}, time.Time{}
	time.Sleep(took)
	s.ran(time.Now(), repairs)
	return s.id, 0
}

// count changes a sandbox all the time, and returns how often the agent runs.
func (c *Captures) count(id string, d, took time.Duration, repairs bool) (runs int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		c.changed(id)
		id, wait := c.take(took, repairs)
		if id != "" {
			runs++
		}
		time.Sleep(max(wait, time.Millisecond))
	}
	return runs
}

// A sandbox that is repaired all the time gets its free repairs, then one a minute, and free repairs again once it was
// left alone.
func TestRepairsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("", "")
		busy := c.sandbox("busy")
		if n := c.count(busy.id, time.Second, 0, true); n != freeRepairs {
			t.Errorf("%d repairs in the first second; want %d", n, freeRepairs)
		}
		if n := c.count(busy.id, 9*time.Minute, 0, true); n != 9 && n != 8 {
			t.Errorf("%d repairs in nine minutes; want one a minute", n)
		}
		time.Sleep(window)
		if n := c.count(busy.id, time.Second, 0, true); n != freeRepairs {
			t.Errorf("%d repairs after it was left alone; want %d", n, freeRepairs)
		}
	})
}

// Runs that find a capture unchanged use up no repairs. They are limited by the time that they take.
func TestRunsAreLimitedByTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("", "")
		const took = 100 * time.Millisecond
		s := c.sandbox("busy")
		if n := c.count(s.id, freeTime/2, took, false); n < 40 {
			t.Errorf("%d runs; want one after the other", n)
		}
		if at, is := s.exhausted(); is || s.allowed(time.Now()).After(time.Now()) {
			t.Errorf("there are no repairs left since %s", at)
		}
		c.count(s.id, freeTime, took, false)
		if n := c.count(s.id, time.Minute, took, false); n < 25 || n > 30 {
			t.Errorf("%d runs in a minute; want one in %d times what it takes", n, pause+1)
		}
		slowly := c.sandbox("slow")
		c.count(slowly.id, time.Second, freeTime, false)
		if n := c.count(slowly.id, 10*time.Minute, freeTime, false); n < 8 || n > 10 {
			t.Errorf("%d slow runs in ten minutes; want one in %s", n, freeTime+slow)
		}
		// A change during a run waits, too.
		s = c.sandbox("other")
		c.changed(s.id)
		s, _, _ = c.next(time.Now())
		s.due = time.Time{}
		time.Sleep(freeTime)
		c.changed(s.id)
		if s.ran(time.Now(), false); time.Until(s.due) != slow {
			t.Errorf("it is due in %s; want %s", time.Until(s.due), slow)
		}
	})
}

// The sandbox whose runs took the least time comes first, and those with long runs cannot hold all workers.
func TestOthersAreNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("", "")
		for took, id := range map[time.Duration]string{2 * longRun: "long", 3 * longRun: "longer", longRun / 2: "busy"} { // any order: one after the other
			c.changed(c.sandbox(id).id)
			c.take(took, true)
		}
		all := []string{"longer", "long", "busy", "calm"}
		c.sandbox("calm")
		for _, id := range all {
			c.changed(id)
		}
		var taken []*sandbox
		for _, want := range []string{"calm", "busy", "long", ""} {
			s, _, _ := c.next(time.Now())
			if got := ""; s != nil {
				taken, got = append(taken, s), s.id
				if s.due = (time.Time{}); got != want {
					t.Fatalf("%s is next, not %q", got, want)
				}
			} else if want != "" {
				t.Fatalf("none is next, not %s", want)
			}
		}
		taken[2].ran(time.Now(), true)
		time.Sleep(longRun + 1) // the runs of calm and busy are long, too
		if s, _, _ := c.next(time.Now()); s != nil {
			t.Errorf("%s is next beside a long run", s.id)
		}
		for _, s := range taken[:2] {
			s.ran(time.Now(), true)
		}
		if id, _ := c.take(0, true); id != "longer" {
			t.Errorf("%q is next, not longer", id)
		}
		if id, wait := c.take(0, true); id != "" || wait != slow {
			t.Errorf("%q is due, or another one after %s", id, wait)
		}
	})
}

// A failed repair is tried again, later each time, and the capture is reported once.
func TestFailuresAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("", "")
		s := c.sandbox("a")
		began := time.Now()
		var pauses []time.Duration
		for range 14 {
			c.again(s, began)
			pauses = append(pauses, time.Until(s.due))
		}
		if pauses[0] != retryBase || pauses[1] != 2*retryBase || pauses[13] != slow || !s.since.Equal(began) {
			t.Errorf("the pauses are %v", pauses)
		}
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, nil))
		for range 3 {
			s.notInPlace("reason", log)
		}
		if n := strings.Count(text.String(), Code); n != 1 || c.Stats().NotInPlace != 1 {
			t.Errorf("it is reported %d times, and %d are not in place", n, c.Stats().NotInPlace)
		}
		s.due, s.runs = time.Time{}, []run{{began: began}}
		if c.tidy(time.Now(), log); c.Stats().NotInPlace != 1 {
			t.Error("a capture counts as in place at once")
		}
		time.Sleep(slow)
		c.tidy(time.Now(), log)
		if n := strings.Count(text.String(), "in place again"); n != 1 || c.Stats().NotInPlace != 0 {
			t.Errorf("its end is reported %d times: %s", n, &text)
		}
	})
}

// A sandbox that becomes due while its repair runs, when no worker can take it, is taken afterwards.
func TestDueWhileARepairRuns(t *testing.T) {
	dir := t.TempDir()
	agent, waits := filepath.Join(dir, "agent"), filepath.Join(dir, "waits")
	err := errors.Join(syscall.Mkfifo(waits, 0o600),
		os.WriteFile(agent, []byte("#!/bin/sh\nread x < "+waits+"\necho '{\"backend\":\"nftables\",\"unchanged\":'$x'}'\n"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	c := New(agent, dir)
	path, flags := ns.Empty(t).Path(), []string{"-i", "*"}
	if err := c.Restore("a", "", path, flags); err != nil {
		t.Fatal(err)
	}
	repair := func(unchanged string, meanwhile func()) *sandbox {
		s, since, _ := c.next(time.Now())
		if s == nil {
			t.Fatal("no sandbox is due")
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.repair(t.Context(), s, since, slog.New(slog.DiscardHandler))
		}()
		in, err := os.OpenFile(waits, os.O_WRONLY, 0) // the agent runs
		if err != nil {
			t.Error(err)
		}
		meanwhile()
		fmt.Fprintln(in, unchanged)
		in.Close()
		<-ended
		return s
	}
	look := func() { // as another worker does
		<-c.wake
		if s, _, _ := c.next(time.Now()); s != nil {
			t.Error("two workers take one sandbox")
		}
	}
	if repair("true", func() { look(); c.changed("a"); look() }); len(c.wake) != 1 {
		t.Error("no worker is told")
	}
	// Meanwhile nothing waits for longer than the runtime does, which would drop the plugin of the whole node.
	late := errors.New("the runtime does not wait")
	s := repair("false", func() {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(late)
		if err := c.Ensure(ctx, "a", "", path, flags); !errors.Is(err, late) {
			t.Errorf("a container that starts: %v", err)
		}
		if err := c.Restore("a", "", path, flags); err != nil {
			t.Errorf("a sandbox that is restored: %v", err)
		}
	})
	if !c.isDue(s) {
		t.Error("after a change that the watcher did not see, nothing is due")
	}
}

// The real agent repairs what is changed until the sandbox ends; after a capture by nftables nothing runs that is not
// needed. When a sandbox's capture has been changed, a container that starts waits for the repair.
func TestRepairs(t *testing.T) {
	dir := t.TempDir()
	if err := commands.Build(t.Context(), dir, "outrider-agent"); err != nil {
		t.Fatal(err)
	}
	// The agent writes a line for each run.
	agent := filepath.Join(dir, "agent")
	if err := os.WriteFile(agent, []byte("#!/bin/sh\necho >> "+dir+"/runs\nexec "+dir+"/outrider-agent \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	runs := func() int { text, _ := os.ReadFile(dir + "/runs"); return bytes.Count(text, []byte("\n")) }
	pod := ns.Pod(t)
	flags := []string{"-i", "*", "-b", "*"}
	verified := func() error {
		return exec.Command(filepath.Join(dir, "outrider-agent"), append([]string{"capture", "verify", "--network-namespace=" + pod.Path()}, flags...)...).Run()
	}
	c := New(agent, dir)
	ctx, cancel := context.WithCancel(t.Context())
	log, ended := &buffer.Buffer{}, make(chan error, 1)
	go func() { ended <- c.Serve(ctx, slog.New(slog.NewTextHandler(log, nil))) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	defer stop()
	if err := c.Ensure(t.Context(), "a", "shop/web", pod.Path(), flags); err != nil {
		t.Fatal(err)
	}
	if s := c.sandbox("a"); runs() != 1 || c.isDue(s) {
		t.Errorf("after the capture %d agents ran, and another one is due: %v", runs(), c.isDue(s))
	}
	for i, script := range []string{"nft flush ruleset", "nft delete table inet outrider; nft add table inet outrider", "nft insert rule inet outrider output accept"} {
		pod.Sh(script)
		process.Eventually(t, "the repair after "+script, func() bool { return c.Stats().Repairs > uint64(i) && verified() == nil })
	}
	if text := log.String(); !strings.Contains(text, "pod=shop/web sandbox=a") {
		t.Errorf("the log is %s", text)
	}
	stop()
	pod.Sh("nft flush ruleset") // without a watcher
	if err := c.Restore("a", "shop/web", pod.Path(), flags); err != nil {
		t.Fatal(err)
	}
	if c.isDue(c.sandbox("a")) {
		t.Error("a sandbox that is watched is restored")
	}
	c.changed("a")
	if err := errors.Join(c.Ensure(t.Context(), "a", "", pod.Path(), flags), verified()); err != nil {
		t.Errorf("a container starts, and the capture is not in place: %v", err)
	}
	if n := c.Stats().Watched; n != 1 {
		t.Errorf("%d are watched", n)
	}
	c.Forget("a")
	if n := c.Stats().Watched; n != 0 {
		t.Errorf("after the end %d are watched", n)
	}
	if err := c.Restore("b", "", fmt.Sprintf("/proc/%d/fd/none", os.Getpid()), flags); err == nil {
		t.Error("a sandbox without a namespace is restored")
	}
}
