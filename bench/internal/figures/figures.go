// Package figures holds what the programs below bench have in common: a table of figures
// and the load of the machine.
package figures

import (
	"os"
	"slices"
	"strings"
)

// A Table collects figures, in the order in which their rows came first.
type Table struct{ Rows []*Row }

// A Row has the values of one figure.
type Row struct {
	Title, What string
	Baseline    string // title of the row with the same What that it is compared with
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

// Add adds a value to a row, which is made if there is none.
func (t *Table) Add(title, what string, value float64, baseline string) {
	r := t.Find(title, what)
	if r == nil {
		r = &Row{Title: title, What: what, Baseline: baseline}
		t.Rows = append(t.Rows, r)
	}
	r.Values = append(r.Values, value)
}

// Median sorts the values and returns the one in the middle.
func (r *Row) Median() float64 {
	slices.Sort(r.Values)
	return r.Values[len(r.Values)/2]
}

// Load returns the load averages of 1, 5 and 15 minutes.
func Load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(raw))
	if err != nil || len(f) < 3 {
		return "unknown"
	}
	return strings.Join(f[:3], " ")
}
