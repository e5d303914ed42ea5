package journal

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAStartAsATable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := New(Options{Container: time.Now().Add(-20 * time.Millisecond)})
		time.Sleep(time.Millisecond)
		cert := j.Begin("certificate", "none in the pod")
		time.Sleep(1234567 * time.Nanosecond)
		wait := j.Waiter("uid 1000", "outbound")
		cert("signed\nby outriderd", false)
		cert("a second time", true)
		config := j.Begin("configuration", "")
		j.Fail("control plane", "connection refused")
		time.Sleep(11 * time.Second)
		config("rejected", true)
		j.Begin("listener", "")
		wait("configuration", false)
		var out strings.Builder
		if err := j.Record().Text(&out); err != nil {
			t.Fatal(err)
		}
		want := `process started 2000-01-01T00:00:00Z, container 20ms earlier

AT      TOOK    KIND   NAME           WHY                 ENDED
1ms     1.23ms  phase  certificate    none in the pod     signed by outriderd
2.23ms  11s     wait   uid 1000       outbound            configuration
2.23ms  11s     phase  configuration                      failed: rejected
2.23ms  -       event  control plane  connection refused  failed
11s     0s+     phase  listener                           not yet
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		want = "configuration failed at 11s: rejected; listener has not ended after 0s; longest: certificate, 1.23ms"
		if got := j.Record().Summary(); got != want {
			t.Errorf("summary: %s\nwant     %s", got, want)
		}
	})
}

func TestAnEmptyJournal(t *testing.T) {
	r := New(Options{}).Record()
	raw, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(raw), `"entries":[]`) || strings.Contains(string(raw), "container") {
		t.Errorf("%s, %v", raw, err)
	}
	if s := r.Summary(); s != "nothing was begun" {
		t.Error(s)
	}
}

func TestTheFirstAndTheLatestAreKept(t *testing.T) {
	j := New(Options{Limit: 6})
	first := j.Begin("0", "")
	lost := j.Begin("lost", "")
	for i := 1; i < 12; i++ {
		j.Note(strconv.Itoa(i), "")
	}
	first("late", false)
	lost("nobody sees it", false)
	var got []string
	r := j.Record()
	for _, e := range r.Entries {
		got = append(got, e.Name+e.Ended)
	}
	if diff := cmp.Diff([]string{"0late", "lostnobody sees it", "1", "9", "10", "11"}, got); diff != "" || r.Lost != 7 {
		t.Errorf("lost %d (-want +got):\n%s", r.Lost, diff)
	}
}

func TestManyAtOnce(t *testing.T) {
	j := New(Options{Limit: 50})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				end := j.Waiter("a", "b")
				j.Record()
				end("c", false)
			}
		})
	}
	wg.Wait()
	r := j.Record()
	if len(r.Entries)+r.Lost != 1000 || len(r.Entries) != 50 {
		t.Errorf("%d entries, %d lost", len(r.Entries), r.Lost)
	}
	for _, e := range r.Entries {
		if e.Open {
			t.Errorf("open: %+v", e)
		}
	}
}

func TestWhenAProcessBegan(t *testing.T) {
	before := time.Now()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	after := time.Now()
	got, err := Began("/proc", strconv.Itoa(cmd.Process.Pid))
	if slack := 20 * time.Millisecond; err != nil || got.Before(before.Add(-slack)) || got.After(after.Add(slack)) {
		t.Errorf("%v, %v; between %v and %v", got, err, before, after)
	}
	if self, err := Began("/proc", "self"); err != nil || self.After(before) {
		t.Errorf("self: %v, %v", self, err)
	}
	if _, err := Began(t.TempDir(), "self"); err == nil {
		t.Error("no such process, and no error")
	}
}

func FuzzStartTicks(f *testing.F) {
	f.Add("1 (a) b) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0")
	f.Add(")")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := startTicks(s); n > 1<<53 || err != nil && n != 0 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

func TestTheNameOfAProcessMayHoldAnything(t *testing.T) {
	n, err := startTicks("1 (a) b) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0")
	if n != 4242 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
