package status

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheJournalAsATable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := NewJournal(JournalOptions{Container: time.Now().Add(-20 * time.Millisecond)})
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
	r := NewJournal(JournalOptions{}).Record()
	raw, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(raw), `"entries":[]`) || strings.Contains(string(raw), "container") {
		t.Errorf("%s, %v", raw, err)
	}
	if s := r.Summary(); s != "nothing has begun" {
		t.Error(s)
	}
}

func TestTheJournalKeepsTheFirstAndTheLatest(t *testing.T) {
	j := NewJournal(JournalOptions{Limit: 6})
	first := j.Begin("0", "")
	lost := j.Begin("lost", "")
	for i := 1; i < 12; i++ {
		j.Note(strconv.Itoa(i), "")
	}
	first("late", false)
	lost("unseen", false)
	var got []string
	r := j.Record()
	for _, e := range r.Entries {
		got = append(got, e.Name+e.Ended)
	}
	if diff := cmp.Diff([]string{"0late", "lostunseen", "1", "9", "10", "11"}, got); diff != "" || r.Lost != 7 {
		t.Errorf("lost %d (-want +got):\n%s", r.Lost, diff)
	}
}

func TestTheJournalTakesConcurrentEntries(t *testing.T) {
	j := NewJournal(JournalOptions{Limit: 50})
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
