package e2e

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"outrider.dev/startup"
	"outrider.dev/test/e2e/world"
	"outrider.dev/test/tier"
)

// report collects the results of the whole run.
var report ledger

// A ledger counts the results of cases.
type ledger struct {
	mu     sync.Mutex
	cases  []*entry
	starts map[startup.Mechanism]int // number of applications' starts that startup.Check has judged
	wrong  map[startup.Mechanism]int // number of violations
	left   int                       // number of cases left to the nightly run
}

// An entry holds the results of one case.
type entry struct {
	name            string
	took            time.Duration
	pods            int // number of pods created
	starts          int // number of applications' starts, including restarts
	calls, failed   int
	refused, broken int // number of refused connections, and of violations of plans
	remark          string
	result          string
}

// begin adds and returns the entry for a case. It is completed when the case ends.
func (l *ledger) begin(t *testing.T) *entry {
	began := time.Now()
	e := &entry{name: strings.ReplaceAll(t.Name(), "Test", "")}
	l.mu.Lock()
	l.cases = append(l.cases, e)
	l.mu.Unlock()
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		e.took, e.result = time.Since(began), "ok"
		if t.Failed() {
			e.result = "FAILED"
		} else if t.Skipped() {
			e.result = "skipped"
		}
	})
	return e
}

func (l *ledger) judged(e *entry, by startup.Mechanism, starts, violations int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.starts == nil {
		l.starts, l.wrong = map[startup.Mechanism]int{}, map[startup.Mechanism]int{}
	}
	l.starts[by] += starts
	l.wrong[by] += violations
	e.starts += starts
	e.broken += violations
}

func (l *ledger) count(e *entry, change func(*entry)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(e)
}

func (l *ledger) print(to io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(to, "\nkubelet %s\n", w.Version)
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.TabIndent)
	fmt.Fprintln(t, "\tseconds\tpods\tstarts\tviolations\tcalls\tfailed\trefused\t  case")
	var pods, starts int
	for _, e := range l.cases {
		fmt.Fprintf(t, "%s\t%.1f\t%d\t%d\t%d\t%d\t%d\t%d\t  %s%s\n", e.result, e.took.Seconds(), e.pods, e.starts, e.broken, e.calls, e.failed, e.refused, e.name, e.remark)
		pods += e.pods
		starts += e.starts
	}
	t.Flush()
	fmt.Fprintf(to, "%d of %d cases, %d pods, %d starts of applications judged by startup.Check", len(l.cases), len(l.cases)+l.left, pods, starts)
	for _, m := range []startup.Mechanism{startup.Gate, startup.Native, startup.Hold, ""} {
		name := string(m)
		if m == "" {
			name = "no order"
		}
		fmt.Fprintf(to, "; %s: %d starts, %d violations", name, l.starts[m], l.wrong[m])
	}
	fmt.Fprintln(to)
}

// enough returns the minimum number of starts with gates and native sidecars that a whole run must judge. The nightly
// run has 180 such starts, other runs have 45.
func enough() int { return tier.Times(40, 150) }

// tooFew returns an error if the cases have judged fewer starts than the given number, so that their success proves
// little.
func (l *ledger) tooFew(enough int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.starts[startup.Gate] + l.starts[startup.Native]; n < enough {
		return fmt.Errorf("%d starts by gate and native were judged, want %d or more", n, enough)
	}
	return nil
}

// partial reports whether the flags -run, -skip or -list exclude cases.
func partial() bool {
	return slices.ContainsFunc([]string{"run", "skip", "list"}, func(name string) bool {
		return flag.Lookup("test."+name).Value.String() != ""
	})
}

// A run that has judged too few starts fails.
func TestTooFewStartsFail(t *testing.T) {
	for native, fails := range map[int]bool{40: true, 49: true, 50: false} {
		l := ledger{starts: map[startup.Mechanism]int{startup.Gate: 100, startup.Native: native, startup.Hold: 500, "": 500}}
		if err := l.tooFew(150); (err != nil) != fails {
			t.Errorf("100 by gate, %d native: %v", native, err)
		}
	}
}

// tally returns the numbers of failed and of refused calls that the applications of a pod report, and adds the calls
// to the entry.
func (e *entry) tally(p *world.Pod) (failed, refused int) {
	calls := 0
	for _, word := range p.Records("") {
		switch word.Event {
		case "done":
			calls += number(word.Values["calls"])
			failed += number(word.Values["failed"])
			refused += number(word.Values["refused"])
		case "config":
			calls++
			if word.Values["result"] != "ok" {
				failed++
			}
			if word.Values["result"] == "refused" {
				refused++
			}
		}
	}
	report.count(e, func(e *entry) { e.calls += calls; e.failed += failed; e.refused += refused })
	return failed, refused
}

func number(text string) (n int) {
	fmt.Sscan(text, &n)
	return n
}
