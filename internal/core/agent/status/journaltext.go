package status

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Text writes r as a table for people.
func (r JournalRecord) Text(w io.Writer) error {
	fmt.Fprintf(w, "process started %s", r.Process.UTC().Format(time.RFC3339Nano))
	if r.Container != nil {
		fmt.Fprintf(w, ", container %s earlier", round(r.Process.Sub(*r.Container)))
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "AT\tTOOK\tKIND\tNAME\tWHY\tENDED")
	for _, e := range r.Entries {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", round(e.Begin), r.took(e), e.Kind, line(e.Name), line(e.Why), outcome(e))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Lost > 0 {
		fmt.Fprintf(w, "\n%d entries between the first and the latest were not kept\n", r.Lost)
	}
	return nil
}

// took returns the duration of e; until e has ended, the duration so far.
func (r JournalRecord) took(e Entry) string {
	switch {
	case e.Kind == EventEntry:
		return "-"
	case e.Open:
		return round(r.At.Sub(r.Process)-e.Begin) + "+"
	}
	return round(e.End - e.Begin)
}

func outcome(e Entry) string {
	word := line(e.Ended)
	switch {
	case e.Open:
		return "not yet"
	case e.Failed:
		return strings.TrimSuffix("failed: "+word, ": ")
	}
	return word
}

// line replaces newlines and tabs, so that a text stays in its row and its column.
func line(s string) string { return strings.Join(strings.Fields(s), " ") }

// round rounds d to about three digits.
func round(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond && d > -10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 10*time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// Summary describes r in one line: the first failure, the first phase that has not ended, and
// the phase that took longest.
func (r JournalRecord) Summary() string {
	var failed, open, longest string
	var most time.Duration
	for _, e := range r.Entries {
		switch {
		case e.Failed && failed == "":
			failed = fmt.Sprintf("%s failed at %s: %s", line(e.Name), round(e.End), line(e.Ended+" "+e.Why))
		case e.Open && e.Kind == PhaseEntry && open == "":
			open = fmt.Sprintf("%s has not ended after %s", line(e.Name), strings.TrimSuffix(r.took(e), "+"))
		case e.Kind == PhaseEntry && !e.Open && e.End-e.Begin > most:
			most = e.End - e.Begin
			longest = fmt.Sprintf("longest: %s, %s", line(e.Name), round(most))
		}
	}
	var words []string
	for _, s := range []string{failed, open, longest} {
		if s != "" {
			words = append(words, s)
		}
	}
	if len(words) == 0 {
		return "nothing has begun"
	}
	return strings.Join(words, "; ")
}
