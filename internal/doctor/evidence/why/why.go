// Package why finds the line of a log that tells why a program ended, by the structure of logs: the levels of lines,
// and the headers of stack traces in the usual languages. A line is ranked by what it is, never by which program wrote
// it.
//
// [LevelOf] returns the level of a line, [Find] the line that tells most of those near the end, [Say] its message
// without time and level, [LastWord] the last line of a log that has none, [Remedy] what is to be done about it.
package why

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// A rank says how likely a line is the reason of an end.
type rank int

const (
	nothing rank = iota
	ending       // of any level, and it says no more than that the program ends
	told         // words as "not found" or "is required", without a level
	asError      // of the level error
	thrown       // the header of an exception, "error: …", what a shell says of a command
	fatal        // of a higher level, a panic, an exception that was not caught
)

// A Reason has the words of a log about the end of its program.
type Reason struct {
	Line  Line
	Cause *Line  // the last line of those that say what caused it; nil: none
	Text  string // the message, in one line
}

// Texts are in the lines of which [Tells] may be true, in lower case. They are few, since most lines of a large log
// have none of them.
var Texts = []string{"panic: ", "fatal", "crit", "exception", "uncaught", "unhandled", "caused by:", "terminate called", "panicked at", "emerg",
	"application failed to start", `"level":60`}

// Tells reports whether a line may tell why a program ended, also if any number of lines follows, as a dump of all threads.
func Tells(line []byte) bool {
	text := string(line[:min(len(line), mostOfLine)])
	return LevelOf(text) != Info && (isCause(text) || rankOf(text) >= asError)
}

// mostOfLine is the number of first bytes of a line by which it is ranked.
const mostOfLine = 512

// A Line is a line of a log.
type Line struct {
	Number int
	Text   []byte
	At     time.Time // by any clock; zero: not known
}

// Limits of how far before the last line that tells anything another one may be.
const (
	backLines = 100
	backTime  = 10 * time.Second
)

// Find returns the reason of the end of a log, of lines for which [Tells] is true, those after them, and the last
// lines, in any order. show makes a line harmless. It returns false if no line tells a reason, or if the program went
// on for long after the last one that does.
func Find(lines []Line, show func([]byte) string) (Reason, bool) {
	lines = slices.SortedStableFunc(slices.Values(lines), func(a, b Line) int { return a.Number - b.Number })
	lines = slices.CompactFunc(lines, func(a, b Line) bool { return a.Number == b.Number })
	end, best, high := -1, -1, nothing
	for i, l := range slices.Backward(lines) {
		if end >= 0 && !near(l, lines[end]) {
			break
		}
		r := rankOf(string(l.Text))
		if r > nothing && end < 0 {
			end = i
		}
		if r > high {
			best, high = i, r
		}
	}
	if end < 0 || goesOn(lines[best], lines[len(lines)-1], high) {
		return Reason{}, false
	}
	return reasonAt(lines, best, show), true
}

// LastWord returns the message of the last line of a log that says more than that the program ends, or that it answered
// a request; empty: none does. wrong: by its words, something was wrong. The line may have nothing to do with the end.
func LastWord(lines []string) (text string, wrong bool) {
	for _, line := range slices.Backward(lines) {
		text := strings.TrimSpace(Say(line))
		if text != "" && !isFrame(line) && LevelOf(line) != Debug && !onlyEnds(text) && !request.MatchString(line) {
			return Cut(text, most), tells(text)
		}
	}
	return "", false
}

// request matches a line of an access log.
var request = regexp.MustCompile(`\b(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) /`)

// near reports whether a line belongs to the same end as a later one.
func near(a, later Line) bool {
	if !a.At.IsZero() && !later.At.IsZero() {
		return later.At.Sub(a.At) <= backTime
	}
	return later.Number-a.Number <= backLines
}

// goesOn reports whether the program did other work for long after a line. A dump of all threads may have any number of
// lines.
func goesOn(a, last Line, r rank) bool {
	if !a.At.IsZero() && !last.At.IsZero() {
		return last.At.Sub(a.At) > 6*backTime
	}
	return last.Number-a.Number > backLines && r < fatal
}

// reasonAt returns the reason that begins with a line: of a header without a message, with the next line that has one,
// and with the last cause below it.
func reasonAt(lines []Line, at int, show func([]byte) string) Reason {
	r := Reason{Line: lines[at], Text: Say(show(lines[at].Text))}
	r.complete(lines[at+1:min(at+8, len(lines))], show)
	for _, l := range lines[at+1:] {
		if text, is := causeOf(string(l.Text)); is && (l.Number-r.Line.Number < backLines || strings.HasPrefix(text, "Caused by")) {
			r.Cause = &l
		} else if rankOf(string(l.Text)) >= fatal {
			break
		}
	}
	if r.Cause != nil {
		_, caused, _ := strings.Cut(show(r.Cause.Text), ":")
		if text, is := causeOf(show(r.Cause.Text)); is {
			caused = text
		}
		if caused = strings.TrimSpace(caused); !strings.Contains(r.Text, caused) {
			r.Text = Cut(r.Text, most/2) + ", caused by " + caused
		}
	}
	r.Text = Cut(r.Text, most)
	return r
}

// complete adds to the message of a heading those of the next lines that have one.
func (r *Reason) complete(below []Line, show func([]byte) string) {
	h, is := headingOf(strings.TrimSpace(r.Text))
	if !is {
		return
	}
	var parts []string
	if h.keep {
		parts = append(parts, strings.TrimRight(strings.TrimSpace(r.Text), ":"))
	}
	left := max(h.lines, 1)
	for _, l := range below {
		text := strings.TrimSpace(strings.TrimPrefix(Say(show(l.Text)), "what():"))
		if _, inner := headingOf(text); inner || isFrame(string(l.Text)) || strings.Trim(text, "*-=^~ ") == "" || left == 0 {
			continue
		}
		if left == max(h.lines, 1) {
			r.Line = l
		}
		parts = append(parts, text)
		left--
	}
	if len(parts) > 0 {
		r.Text = strings.Join(parts, ": ")
	}
}

// most is the largest number of characters of a message in a sentence.
const most = 220

// Cut returns a text in one line. Of a long one it returns the beginning and the end: an error that others wrap names
// its cause last.
func Cut(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	r := []rune(text)
	if len(r) <= most {
		return text
	}
	head, tail := string(r[:most*2/5]), string(r[len(r)-most*3/5+3:])
	if i := strings.LastIndexByte(head, ' '); i > 0 {
		head = head[:i]
	}
	if i := strings.IndexByte(tail, ' '); i >= 0 && i < len(tail)/2 {
		tail = tail[i+1:]
	}
	return head + " … " + tail
}
