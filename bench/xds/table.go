package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// A table collects figures, and prints them in the order in which they came first.
type table struct{ rows []*row }

type row struct {
	title, what, baseline string
	values                []float64
}

func (t *table) find(title, what string) *row {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.title == title && r.what == what })
	if i < 0 {
		return nil
	}
	return t.rows[i]
}

// add takes a figure. Baseline is the title whose row of the same kind it is compared
// with, if there is one in the end.
func (t *table) add(title, what string, value float64, baseline string) {
	r := t.find(title, what)
	if r == nil {
		r = &row{title: title, what: what, baseline: baseline}
		t.rows = append(t.rows, r)
	}
	r.values = append(r.values, value)
}

// median sorts the values.
func (r *row) median() float64 {
	slices.Sort(r.values)
	return r.values[len(r.values)/2]
}

func (t *table) print(w io.Writer) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "case\twhat\tn\tmin\tmedian\tmax\tfull push / this")
	last := ""
	for _, r := range t.rows {
		title, ratio := r.title, ""
		if title == last {
			title = ""
		}
		last = r.title
		middle := r.median()
		if base := t.find(r.baseline, r.what); base != nil && middle > 0 {
			ratio = fmt.Sprintf("%.1f", base.median()/middle)
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%.4g\t%.4g\t%.4g\t%s\n", title, r.what, len(r.values), r.values[0], middle, r.values[len(r.values)-1], ratio)
	}
	out.Flush()
}

func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(raw))
	if err != nil || len(f) < 3 {
		return "unknown"
	}
	return strings.Join(f[:3], " ")
}
