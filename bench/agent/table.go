package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/test/agent/harness"
)

// A table is printed with its rows in the order in which their titles came first.
type table struct {
	figures.Table
	out io.Writer
}

// head says what is measured, and on what a day.
func (t *table) head(w *harness.World) {
	size := int64(0)
	if info, err := os.Stat(w.Binaries.Agent); err == nil {
		size = info.Size()
	}
	fmt.Fprintf(t.out, "agent, stripped: %.2f MB. Load average at the begin: %s\n", float64(size)/1e6, figures.Load())
}

func (t *table) print() {
	fmt.Fprintf(t.out, "Load average at the end: %s. Times in milliseconds since the exec; memory is Rss at ready.\n\n", figures.Load())
	out := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "case\twhat\tn\tmin\tmedian\tmax\tof Envoy alone")
	last := ""
	for _, r := range t.ordered() {
		title, ratio := r.Title, ""
		if title == last {
			title = ""
		}
		last = r.Title
		if base := t.Find(r.Baseline, r.What); base != nil {
			ratio = fmt.Sprintf("%.2f", r.Median()/base.Median())
		}
		m := r.Median() // sorts
		fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", title, r.What, len(r.Values), figure(r.Values[0]), figure(m), figure(r.Values[len(r.Values)-1]), ratio)
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
func (t *table) ordered() (out []*figures.Row) {
	var titles []string
	for _, r := range t.Rows {
		if !slices.Contains(titles, r.Title) {
			titles = append(titles, r.Title)
		}
	}
	for _, title := range titles {
		for _, r := range t.Rows {
			if r.Title == title {
				out = append(out, r)
			}
		}
	}
	return out
}
