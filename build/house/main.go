// Command house measures the project. "make house" prints the number of lines of each feature (features.txt), and
// a table of measures with their limits (budgets.txt). It fails if a file belongs to no feature, or if a measure
// exceeds its limit. If a measure is below its limit, it lowers the limit. A limit may be raised only by a commit
// that changes nothing else, whose body gives the reason.
//
// It must run in the root of the module.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
)

func main() { os.Exit(run(os.Stdout, os.Stderr)) }

// run prints the tables. It returns the exit status: 0, 1 if a measure exceeds its limit or a file belongs
// to no feature, 2 if the tree cannot be read.
func run(stdout, stderr io.Writer) int {
	t, err := readTree(".")
	if err != nil {
		fmt.Fprintln(stderr, "house: error:", err)
		return 2
	}
	defer t.close()
	status := 0
	if err := ledger(t, stdout); err != nil {
		fmt.Fprintln(stderr, err)
		status = 1
	}
	fmt.Fprintln(stdout)
	over, err := measureAll(t, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "house: error:", err)
		return 2
	}
	for _, r := range over {
		fmt.Fprintf(stderr, "\nhouse: %s: %d, and the limit is %d\n", r.measure.name, r.now, r.limit)
		for i, p := range r.places {
			if i == 50 {
				fmt.Fprintf(stderr, "  and %d more\n", len(r.places)-i)
				break
			}
			fmt.Fprintln(stderr, "  "+p)
		}
		status = 1
	}
	return status
}

// measureAll prints each measure with its limit. It lowers limits that are higher than the value, and returns the
// measures that exceed their limits.
func measureAll(t *tree, stdout io.Writer) (over []result, err error) {
	limits, err := readBudgets(t.root)
	if err != nil {
		return nil, err
	}
	reached := map[string]int{}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "measure\tnow\tlimit")
	for _, m := range measures {
		r, err := m.take(t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		limit, ok := limits[m.name]
		if !ok {
			return nil, fmt.Errorf("%s has no limit for %q", budgetsFile, m.name)
		}
		delete(limits, m.name)
		r.measure, r.limit, reached[m.name] = m, limit, r.now
		fmt.Fprintf(table, "%s\t%d\t%d\n", m.name, r.now, limit)
		if m.shown && r.now <= limit {
			for _, p := range r.places {
				fmt.Fprintf(table, "  %s\t\t\n", p)
			}
		}
		if r.now > limit {
			over = append(over, r)
		}
	}
	table.Flush()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		return nil, fmt.Errorf("%s has a limit for %q, which is no measure", budgetsFile, name)
	}
	lowered, err := lower(t.root, reached)
	if lowered > 0 {
		fmt.Fprintf(stdout, "\n%d limits are lowered to what was reached: commit %s\n", lowered, budgetsFile)
	}
	return over, err
}
