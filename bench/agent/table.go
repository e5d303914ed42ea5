package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"outrider.dev/test/agent/harness"
)

// A table collects figures, and prints them in the order in which they came first.
type table struct {
	out  io.Writer
	rows []*row
}

type row struct {
	title, what, baseline string
	values                []float64
}

func (t *table) row(title, what string) *row {
	for _, r := range t.rows {
		if r.title == title && r.what == what {
			return r
		}
	}
	return nil
}

// add takes a figure. baseline is the title whose row of the same kind it is compared with.
func (t *table) add(title, what string, value float64, baseline string) {
	r := t.row(title, what)
	if r == nil {
		r = &row{title: title, what: what, baseline: baseline}
		t.rows = append(t.rows, r)
	}
	r.values = append(r.values, value)
}

func (r *row) median() float64 {
	slices.Sort(r.values)
	return r.values[len(r.values)/2]
}

// head says what is measured, and on what a day.
func (t *table) head(w *harness.World) {
	size := int64(0)
	if info, err := os.Stat(w.Binaries.Agent); err == nil {
		size = info.Size()
	}
	fmt.Fprintf(t.out, "agent, stripped: %.2f MB. Load average at the begin: %s\n", float64(size)/1e6, load())
}

func (t *table) print() {
	fmt.Fprintf(t.out, "Load average at the end: %s. Times in milliseconds since the exec; memory is Rss at ready.\n\n", load())
	out := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "case\twhat\tn\tmin\tmedian\tmax\tof Envoy alone")
	last := ""
	for _, r := range t.ordered() {
		title, ratio := r.title, ""
		if title == last {
			title = ""
		}
		last = r.title
		if base := t.row(r.baseline, r.what); base != nil {
			ratio = fmt.Sprintf("%.2f", r.median()/base.median())
		}
		m := r.median() // sorts
		fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", title, r.what, len(r.values), figure(r.values[0]), figure(m), figure(r.values[len(r.values)-1]), ratio)
	}
	out.Flush()
}

// figure has two places where one would leave nothing to see.
func figure(x float64) string {
	if x < 1 {
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

// ordered are the rows of a title together.
func (t *table) ordered() (out []*row) {
	var titles []string
	for _, r := range t.rows {
		if !slices.Contains(titles, r.title) {
			titles = append(titles, r.title)
		}
	}
	for _, title := range titles {
		for _, r := range t.rows {
			if r.title == title {
				out = append(out, r)
			}
		}
	}
	return out
}

func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(raw))
	if err != nil || len(f) < 3 {
		return "unknown"
	}
	return strings.Join(f[:3], " ")
}
