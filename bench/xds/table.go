package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"outrider.dev/bench/internal/figures"
)

// print writes the table.
func print(w io.Writer, t *figures.Table) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "case\twhat\tn\tmin\tmedian\tmax\tfull push / this")
	last := ""
	for _, r := range t.Rows {
		title, ratio := r.Title, ""
		if title == last {
			title = ""
		}
		last = r.Title
		middle := r.Median()
		if base := t.Find(r.Baseline, r.What); base != nil && middle > 0 {
			ratio = fmt.Sprintf("%.1f", base.Median()/middle)
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%.4g\t%.4g\t%.4g\t%s\n", title, r.What, len(r.Values), r.Values[0], middle, r.Values[len(r.Values)-1], ratio)
	}
	out.Flush()
}
