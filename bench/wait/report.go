package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// A row is what was measured of one kind. Times are in milliseconds.
type row struct {
	Case   string  `json:"case"`
	N      int     `json:"n"`
	Min    float64 `json:"min_ms"`
	Median float64 `json:"median_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

func rowOf(name string, times []time.Duration) row {
	slices.Sort(times)
	at := func(i int) float64 { return float64(times[i].Microseconds()) / 1000 }
	last := len(times) - 1
	return row{name, len(times), at(0), at(last / 2), at(last * 99 / 100), at(last)}
}

func print(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "CASE\tN\tMIN\tMEDIAN\tP99\tMAX\t(ms)")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t\n", r.Case, r.N, r.Min, r.Median, r.P99, r.Max)
	}
	return t.Flush()
}
