// Package figures contains the parts that the benchmark programs share: flags and exit status, a table of
// measured values, and the load of the machine.
package figures

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A Table collects measured values. Rows keep the order in which they were added.
type Table struct{ Rows []*Row }

// A Row holds all measured values of one quantity.
type Row struct {
	Title, What string
	Baseline    string // the Title of the row to compare with; both rows have the same What
	Values      []float64
}

// Find returns a row, or nil.
func (t *Table) Find(title, what string) *Row {
	i := slices.IndexFunc(t.Rows, func(r *Row) bool { return r.Title == title && r.What == what })
	if i < 0 {
		return nil
	}
	return t.Rows[i]
}

// Add adds a value to a row, and creates the row if it does not exist.
func (t *Table) Add(title, what string, value float64, baseline string) {
	r := t.Find(title, what)
	if r == nil {
		r = &Row{Title: title, What: what, Baseline: baseline}
		t.Rows = append(t.Rows, r)
	}
	r.Values = append(r.Values, value)
}

// Median sorts the values and returns the middle value; of two middle values, the higher. There must be a
// value.
func (r *Row) Median() float64 {
	slices.Sort(r.Values)
	return r.Values[len(r.Values)/2]
}

// Print writes the rows grouped by title, with their minimum, median, 99th percentile and maximum. If
// ratio is not empty, it is the heading of one more column: the median divided by the baseline's
// median.
func (t *Table) Print(w io.Writer, ratio string) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "case\twhat\tn\tmin\tmedian\tp99\tmax\t"+ratio)
	printed := map[string]bool{}
	for _, first := range t.Rows {
		title := first.Title
		if printed[title] {
			continue
		}
		printed[title] = true
		for _, r := range t.Rows {
			if r.Title != first.Title {
				continue
			}
			middle, over := r.Median(), "" // Median sorts
			if base := t.Find(r.Baseline, r.What); base != nil {
				over = fmt.Sprintf("%.2f", middle/base.Median())
			}
			last := len(r.Values) - 1
			fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", title, r.What, len(r.Values),
				figure(r.Values[0]), figure(middle), figure(r.Values[(last*99+50)/100]), figure(r.Values[last]), over)
			title = ""
		}
	}
	return out.Flush()
}

// figure formats a value below 10 with two decimal places, and others with one.
func figure(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

// Load returns the load averages of 1, 5 and 15 minutes as text, or "unknown".
func Load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(raw))
	if err != nil || len(f) < 3 {
		return "unknown"
	}
	return strings.Join(f[:3], " ")
}

// Numbers parses the comma-separated list of a flag. Each number must be between least and most; both are
// allowed.
func Numbers(name, list string, least, most int) (out []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("-%s: %q is not a number from %d to %d", name, text, least, most)
		}
		out = append(out, n)
	}
	return out, nil
}
