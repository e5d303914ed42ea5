// Package why finds the line of a log that tells why a program ended, by the structure of logs: the levels of lines,
// and the headers of stack traces in the usual languages. A line is ranked by what it is, never by which program wrote
// it.
//
// [LevelOf] returns the level of a line, [Find] the line that tells most of those near the end, [Say] its message
// without time and level, [LastWord] the last line of a log that has none, [Remedy] what is to be done about it.
package why

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/doctor/evidence/timestamp"
)

// A rank says how likely a line is the reason of an end.
type rank int

const (
	nothing rank = iota
	ending       // of any level, and it says no more than that the program ends
	told         // words as "not found" or "is required", without a level
	asError      // of the level error
	thrown       // the header of an exception, "error: …", what a shell says of a command
	fatal        // of a higher level
	crash        // a panic, an exception that was not caught, a test that failed
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
	end, best, high := -1, -1, 0
	for i, l := range slices.Backward(lines) {
		if end >= 0 && !near(l, lines[end]) {
			break
		}
		s := score(string(l.Text))
		if s > 0 && end < 0 {
			end = i
		}
		if s > high || s == high && best >= 0 && together(l, lines[best]) && high < crashScore*len(classes) && string(l.Text) != string(lines[best].Text) {
			best, high = i, s
		}
	}
	if end < 0 || goesOn(lines[best], lines[len(lines)-1], rankOf(string(lines[best].Text))) {
		return Reason{}, false
	}
	if high == int(ending) {
		best = mentionBefore(lines, best)
	}
	if i := ledTo(lines, best); i >= 0 {
		best = i
	}
	return reasonAt(lines, aboveList(lines, saidBefore(lines, best)), show), true
}

// saidBefore returns the line just above that says what a line says, and more; the line itself if there is none.
func saidBefore(lines []Line, at int) int {
	text := Say(string(lines[at].Text))
	for i := at - 1; i >= 0 && len(text) > 8 && lines[at].Number-lines[i].Number <= mentionLines && near(lines[i], lines[at]); i-- {
		if before := Say(string(lines[i].Text)); len(before) > len(text)+8 && !isFrame(string(lines[i].Text)) && says(before, text) && !strings.ContainsAny(before, "();") {
			return i
		}
	}
	return at
}

// inList matches the lines of a list, or of a text in a box, below a heading.
var inList = regexp.MustCompile(`^\s*(?:\||│|\* |- )`)

// aboveList returns the heading of a list that has a line; the line itself if it is in none.
func aboveList(lines []Line, at int) int {
	if !inList.Match(lines[at].Text) {
		return at
	}
	for i := at - 1; i >= max(at-mostBelow, 0) && lines[at].Number-lines[i].Number <= mostBelow; i-- {
		if text := string(lines[i].Text); LevelOf(text) > Warning && isHeading(strings.TrimSpace(Say(text))) {
			return i
		}
	}
	return at
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

// mentionBefore returns the last line of a low level that has the reason of an end of which the log says nothing else; the
// line of the end itself if none has.
func mentionBefore(lines []Line, end int) int {
	for i := end - 1; i >= 0 && lines[end].Number-lines[i].Number <= mentionLines && near(lines[i], lines[end]); i-- {
		if isMentioned(string(lines[i].Text)) {
			return i
		}
	}
	return end
}

// mentionLines is the number of lines before an end in which a line of a low level may have the reason.
const mentionLines = 12

// together reports whether two lines with the same score are of one failure: then the first has the reason, and the
// later one what it led to.
func together(a, later Line) bool {
	if !a.At.IsZero() && !later.At.IsZero() {
		return later.At.Sub(a.At) < time.Second && later.Number-a.Number <= mentionLines
	}
	return later.Number-a.Number <= 3
}

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

// reasonAt returns the reason that begins with a line: of a heading with the lines that have its message, with what
// says more of it, and with the cause of it.
func reasonAt(lines []Line, at int, show func([]byte) string) Reason {
	r := Reason{Line: lines[at], Text: strings.TrimSpace(Say(show(lines[at].Text)))}
	below := lines[at+1:]
	r.complete(below[:min(len(below), mostBelow)], show)
	r.detail(below[:min(len(below), mostDetail)], show)
	r.cause(lines, at, show)
	r.Text = Cut(r.Text, most)
	return r
}

// Numbers of lines below a heading, or below a message, in which there is more of it.
const (
	mostBelow  = 12
	mostDetail = 5
)

// cause adds what caused the error: the deepest of those that are named below it that says something new, or the
// exception above it, in Python.
func (r *Reason) cause(lines []Line, at int, show func([]byte) string) {
	var chain []string // the errors of the chain, the outer ones first
	var of []*Line
	for i, l := range lines[at+1:] {
		text, is := causeOf(show(l.Text))
		if is && (l.Number-r.Line.Number < backLines || strings.HasPrefix(strings.TrimSpace(string(l.Text)), "Caused by")) {
			inner := Reason{Line: l, Text: text}
			inner.complete(lines[at+2+i:min(at+2+i+3, len(lines))], show)
			chain, of = append(chain, inner.Text), append(of, &lines[at+1+i])
		} else if !is && rankOf(string(l.Text)) >= fatal {
			break
		}
	}
	if len(chain) == 0 {
		if l := causeAbove(lines, at); l != nil {
			chain, of = []string{Say(show(l.Text))}, []*Line{l}
		}
	}
	if len(chain) == 0 {
		return
	}
	i := len(chain) - 1
	for k := range i {
		if says(chain[k], chain[i]) {
			i = k // it says the same, and more
			break
		}
	}
	r.Cause = of[i]
	if caused := chain[i]; !says(r.Text, caused) {
		r.Text = Cut(strings.TrimRight(r.Text, "."), max(most*2/5, most-len([]rune(caused))-12)) + ", caused by " + Cut(caused, most*3/5-12)
	}
}

// says reports whether a text has the message of an error, without its type.
func says(text, err string) bool {
	if _, message, is := strings.Cut(err, ": "); is && len(message) > 8 {
		err = message
	}
	return strings.Contains(strings.ToLower(text), strings.ToLower(strings.TrimRight(err, ". ")))
}

// directCause begins the line that Python writes between an exception and the one that it caused.
const directCause = "The above exception was the direct cause"

func isDirectCause(l Line) bool { return strings.HasPrefix(string(l.Text), directCause) }

// ledTo returns the exception that the one in a line led to; -1: none.
func ledTo(lines []Line, at int) int {
	after := lines[at+1:]
	link := slices.IndexFunc(after, isDirectCause)
	throws := func(l Line) bool { return rankOf(string(l.Text)) >= thrown }
	if link < 0 || slices.ContainsFunc(after[:link], throws) {
		return -1
	}
	if i := slices.IndexFunc(after[link:], throws); i >= 0 {
		return at + 1 + link + i
	}
	return -1
}

// causeAbove returns the exception that was the direct cause of the one in a line; nil: none.
func causeAbove(lines []Line, at int) *Line {
	above := lines[max(at-backLines, 0):at]
	if !slices.ContainsFunc(above, isDirectCause) {
		return nil
	}
	caused := false
	for i := len(above) - 1; i >= 0; i-- {
		if isDirectCause(above[i]) {
			caused = true
		} else if rankOf(string(above[i].Text)) >= thrown {
			if caused {
				return &above[i]
			}
			return nil
		}
	}
	return nil
}

// details match what says more of the line above it: PostgreSQL's, and the address in a call of PHP or Python that a
// client turned into a unix socket.
var details = regexp.MustCompile(`(?i)^(?:(?:[\w-]+: )?detail:|>) +(\S.*)$|^#\d.*?\(['"]((?:mysql:[^'"]*host=)?localhost[^'"]*)['"]`)

// detail adds to a message what the next lines say of it.
func (r *Reason) detail(below []Line, show func([]byte) string) {
	for i, l := range below {
		text := Say(show(l.Text))
		m := details.FindStringSubmatch(text)
		switch {
		case m == nil || text[0] == '>' && i > 0:
		case m[1] != "":
			r.Text = strings.TrimRight(r.Text, ".") + ": " + m[1]
			return
		case strings.Contains(r.Text, "No such file"):
			r.Text += ", by " + m[2]
			return
		}
	}
}

// complete adds to the message of a heading those of the next lines that have one: a paragraph.
func (r *Reason) complete(below []Line, show func([]byte) string) {
	h, is := headingOf(strings.TrimSpace(r.Text))
	if !is {
		return
	}
	var parts []string
	if h.keep {
		parts = append(parts, strings.TrimRight(strings.TrimSpace(r.Text), ":={([ "))
	}
	left := cmp.Or(h.lines, mostOfParagraph)
	first := true
	for _, l := range below {
		shown := show(l.Text)
		text := strings.TrimSpace(strings.TrimPrefix(Say(shown), "what():"))
		switch _, inner := headingOf(text); {
		case left == 0 || !first && h.lines == 0 && isApart(shown, text) && (text != "" || !strings.HasSuffix(r.Text, ":")):
			below = nil
		case (inner && h.lines != 1 || !inner || text == "") && (strings.Trim(text, "*-=^~>| ") == "" || isFrame(shown)) || inner && first && isTitle.MatchString(text):
		default:
			if first {
				r.Line = l
			}
			first, r.Text = false, text
			parts = append(parts, strings.TrimRight(text, ":= "))
			left--
		}
		if below == nil {
			break
		}
	}
	if len(parts) > 0 {
		for i := range parts[:len(parts)-1] {
			parts[i] = strings.TrimRight(parts[i], ".")
		}
		r.Text = strings.Join(parts, ": ")
	}
}

// isTitle matches the titles of the parts of a report.
var isTitle = regexp.MustCompile(`^(?:Description|Error Message|error|errors?=|error\(s\)):?$`)

// isApart reports whether a line is no part of the paragraph above it.
func isApart(line, text string) bool {
	_, timed := timestamp.Find([]byte(line))
	return text == "" && !strings.ContainsAny(line, "|│") || isFrame(line) || isCause(line) || timed || LevelOf(line) != NoLevel || isGeneral(text)
}

// most is the largest number of characters of a message in a sentence.
const most = 220
