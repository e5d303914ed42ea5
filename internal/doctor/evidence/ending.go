package evidence

import (
	"slices"
	"strings"

	"outrider.dev/internal/doctor/evidence/why"
)

// Ending matches the lines that may tell why a program ended, for [Log.Told].
var Ending = Pattern{Name: "ending", Any: why.Texts, Only: why.Tells}

// A Told has the words of a log of one run of a container about its end.
type Told struct {
	Container string
	Run       int
	Text      string  // the message, in one line
	Quotes    []Quote // the line, and the one about its cause
	Timeless  bool    // the line has only the time of one before it, and none after it has one: when it was written is not known
}

// Told returns what a log says about the end of its run, from a scan for [Ending] and perhaps others. It returns false
// if it says nothing.
func (l *Log) Told(container string, hits []Hit, last []Line, secrets bool) (Told, bool) {
	at := map[int]Line{}
	var lines []why.Line
	add := func(from ...Line) {
		for _, line := range from {
			at[line.Number] = line
			lines = append(lines, why.Line{Number: line.Number, Text: line.Text, At: line.Time.At})
		}
	}
	for _, h := range hits {
		if h.Pattern == Ending.Name {
			add(h.Line)
			add(h.After...)
		}
	}
	add(last...)
	r, found := why.Find(lines, func(text []byte) string { return Show(text, secrets) })
	if !found {
		return Told{}, false
	}
	of := at[r.Line.Number]
	t := Told{Container: container, Run: l.Run, Text: r.Text, Quotes: []Quote{l.Quote(of, secrets)}}
	t.Timeless = of.Continues && !slices.ContainsFunc(last, func(x Line) bool { return x.Number > of.Number && !x.Continues })
	if r.Cause != nil {
		t.Quotes = append(t.Quotes, l.Quote(at[r.Cause.Number], secrets))
	}
	return t, true
}

// ToldBy returns what the termination message of a run says about its end: a text of the program, or the end of its
// log, as the pod asks for. It returns false if it says nothing.
func ToldBy(container string, r Run, secrets bool) (Told, bool) {
	var lines []why.Line
	for text := range strings.Lines(r.Message[max(len(r.Message)-mostOfMessage, 0):]) {
		lines = append(lines, why.Line{Number: len(lines) + 1, Text: []byte(strings.TrimRight(text, "\r\n"))})
	}
	reason, found := why.Find(lines, func(text []byte) string { return Show(text, secrets) })
	if !found {
		return Told{}, false
	}
	t := Told{Container: container, Run: r.Number, Text: reason.Text, Quotes: []Quote{{Source: r.Source, At: r.Finished, Text: Show(reason.Line.Text, secrets)}}}
	if reason.Cause != nil {
		t.Quotes = append(t.Quotes, Quote{Source: r.Source, At: r.Finished, Text: Show(reason.Cause.Text, secrets)})
	}
	return t, true
}

// mostOfMessage is the largest number of bytes of a termination message, as the kubelet keeps it.
const mostOfMessage = 4096
