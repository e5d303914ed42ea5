package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A report runs the steps of a tier and collects their results.
type report struct {
	title   string
	out     io.Writer
	mu      sync.Mutex // guards out and results
	results []result
	begun   time.Time
	broken  bool // a signal has ended the run
}

// run runs all steps. A step with beside runs at the same time as the previous one.
func (r *report) run(ctx context.Context, steps []step) {
	r.begun = time.Now()
	for len(steps) > 0 && ctx.Err() == nil {
		n := 1
		for n < len(steps) && steps[n].beside {
			n++
		}
		var all sync.WaitGroup
		done := make([]result, n)
		for i, s := range steps[:n] {
			all.Go(func() { done[i] = r.step(ctx, s) })
		}
		all.Wait()
		r.results = append(r.results, done...)
		steps = steps[n:]
	}
	for _, s := range steps {
		r.results = append(r.results, result{step: s})
	}
	r.broken = ctx.Err() != nil
}

func (r *report) step(ctx context.Context, s step) result {
	out := &lines{mu: &r.mu, w: r.out}
	fmt.Fprintf(out, "+ %s\n", s.line())
	done := s.run(ctx, out)
	fmt.Fprintln(out) // completes a last line without a newline
	if done.err != nil {
		fmt.Fprintf(out, "%s: %v\n", s.name, done.err)
	}
	return done
}

// close prints the skipped tests, the table, and a line that says whether the run is green, incomplete or red. It
// returns the exit status.
func (r *report) close() int {
	var total counts
	skipped := map[string]int{}
	status, red := 0, []string(nil)
	for _, res := range r.results {
		total.packages += res.counts.packages
		total.passed += res.counts.passed
		total.failed = append(total.failed, res.counts.failed...)
		for reason, n := range res.counts.skipped { // any order: a sum
			skipped[reason] += n
		}
		if res.err != nil && !res.step.soft {
			status, red = 1, append(red, res.step.name)
		}
	}
	skips, untested := r.skips(skipped)
	for _, res := range r.results {
		if res.err != nil && res.step.soft {
			untested = append(untested, fmt.Sprintf("what needs %s (%s)", res.step.name, res.cause()))
		}
	}
	switch {
	case r.broken:
		status, red = 1, append(red, "interrupted")
	case len(untested) > 0 && os.Getenv("CI") == "true":
		status, red = 1, append(red, "incomplete, which CI must not be")
	}
	table := r.table()
	fmt.Fprint(r.out, table)
	keep(table)
	worth := "green"
	switch {
	case status != 0:
		worth = "RED: " + strings.Join(red, ", ")
	case len(untested) > 0:
		worth = "INCOMPLETE"
	}
	line := fmt.Sprintf("%s: %s; %d packages, %d tests passed, %d failed, %d skipped", r.title, worth, total.packages, total.passed, len(total.failed), skips)
	if len(untested) > 0 {
		line += "; NOT TESTED HERE: " + strings.Join(untested, "; ")
	}
	fmt.Fprintln(r.out, line)
	return status
}

// skips prints a line for each reason for skipped tests. It returns the number of skipped tests, and the reasons
// that mean that this machine lacks something.
func (r *report) skips(skipped map[string]int) (n int, untested []string) {
	if len(skipped) > 0 {
		fmt.Fprintln(r.out, "\nskipped, by reason:")
	}
	reasons := sortedKeys(skipped)
	slices.SortStableFunc(reasons, func(a, b string) int { return cmp.Compare(skipped[b], skipped[a]) })
	for _, reason := range reasons {
		n += skipped[reason]
		fmt.Fprintf(r.out, "%5d  %s\n", skipped[reason], reason)
		if lacking(reason) {
			untested = append(untested, fmt.Sprintf("%d tests: %s", skipped[reason], reason))
		}
	}
	return n, untested
}

// lacking reports whether a test was skipped because this machine lacks a program or a permission.
func lacking(reason string) bool {
	return strings.HasPrefix(reason, "needs ") || strings.Contains(reason, "make deps") || strings.Contains(reason, "make test-deps")
}

func (r *report) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n%-26s %6s %6s\n", r.title, "step", "wall s", "cpu s")
	var cpu time.Duration
	for _, res := range r.results {
		state := "green"
		switch {
		case res.wall == 0:
			state = "not run"
		case res.err != nil && res.step.soft:
			state = "INCOMPLETE"
		case res.err != nil:
			state = "RED: " + res.cause()
		}
		fmt.Fprintf(&b, "%-26s %6.0f %6.0f  %s\n", res.step.name, res.wall.Seconds(), res.cpu.Seconds(), state)
		cpu += res.cpu
	}
	fmt.Fprintf(&b, "%-26s %6.0f %6.0f\n", "in all", time.Since(r.begun).Seconds(), cpu.Seconds())
	return b.String()
}

// keep appends a table to the file $OUTRIDER_TIMES. At its end, CI prints the tables in this file.
func keep(table string) {
	if path := os.Getenv("OUTRIDER_TIMES"); path != "" {
		if f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			f.WriteString(table)
			f.Close()
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
