// Command house measures what is to stay small, and fails where a measure is
// over its limit: "make house" prints the table, CI runs it. A limit is lowered when the
// measure falls, and raised only with a reason in a comment.
//
// It is run in the root of the module.
package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

func main() { os.Exit(run(os.Stdout, os.Stderr)) }

// run prints the table. It returns the exit status: 0, 1 if a measure is over its limit, 2
// if the tree cannot be read.
func run(stdout, stderr io.Writer) int {
	t, err := readTree(".")
	if err != nil {
		fmt.Fprintln(stderr, "house: error:", err)
		return 2
	}
	var over []result
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "measure\tnow\tlimit")
	for _, m := range measures {
		r, err := m.take(t)
		if err != nil {
			fmt.Fprintf(stderr, "house: error: %s: %v\n", m.name, err)
			return 2
		}
		r.measure = m
		fmt.Fprintf(table, "%s\t%d\t%d\n", m.name, r.now, m.limit)
		if r.now > m.limit {
			over = append(over, r)
		}
	}
	table.Flush()
	for _, r := range over {
		fmt.Fprintf(stderr, "\nhouse: %s: %d, and the limit is %d\n", r.measure.name, r.now, r.measure.limit)
		for _, p := range r.places {
			fmt.Fprintln(stderr, "  "+p)
		}
	}
	if len(over) > 0 {
		return 1
	}
	return 0
}
