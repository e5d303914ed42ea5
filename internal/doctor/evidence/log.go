package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"time"

	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/base/mask"
	"outrider.dev/internal/doctor/evidence/timestamp"
)

// A Log is the log of one run of a container.
type Log struct {
	Source    Source
	Run       int // number of the run; -1: not known
	Previous  bool
	Truncated bool   // the input contains only a part of the log
	First     int    // number of its first line in the file; 0: the file is the log
	Lines     []int  // numbers of its lines in the file, if others stand between them
	Taken     string // why it is taken as the log of its container although nothing names that; empty: it is named
	Zone      Zone

	from, to time.Time // start and end of the run; zero: not known
	open     func(context.Context) (io.ReadCloser, error)
	tail     func(most int) ([]byte, error)
}

// A Line is a line of a log.
type Line struct {
	Number    int
	Text      []byte // without the container runtime's prefix and the line ending
	Time      Time   // the time that the program wrote, or else the time from the container runtime; may be unknown
	Likely    Time   // the same, but computed with the likely zone if the log's zone is not known
	Continues bool   // the line belongs to the previous line, and has the Time of that line
}

// NewLog returns a log whose run is not known yet. open opens it; tail reads that many bytes at its end, and is nil if
// the end cannot be read without the rest.
func NewLog(from Source, open func(context.Context) (io.ReadCloser, error), tail func(most int) ([]byte, error)) *Log {
	return &Log{Source: from, Run: -1, open: open, tail: tail}
}

// Head returns the first bytes of the log, most at most, in whole lines unless a single one is longer.
func (l *Log) Head(ctx context.Context, most int64) ([]byte, error) {
	from, err := l.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", l.Source, err)
	}
	defer from.Close()
	text, err := io.ReadAll(io.LimitReader(from, most))
	if end := bytes.LastIndexByte(text, '\n'); int64(len(text)) == most && end >= 0 {
		text = text[:end+1]
	}
	return text, err
}

// At returns the source of a line.
func (l *Log) At(line Line) Source {
	s := l.Source
	s.Line = line.Number
	if i := line.Number - l.First; i >= 0 && i < len(l.Lines) {
		s.Line = l.Lines[i]
	}
	return s
}

const (
	// MaxLine is the limit of bytes of a line; the rest is skipped.
	MaxLine = 64 << 10

	learnt = 64 << 10 // number of first bytes from which the layout of a log is learnt
	sample = 200      // largest number of lines from which the layout is learnt
)

// headLines returns the complete lines at the beginning of a log, whose first bytes are head. If whole is set, head
// contains the whole log.
func headLines(head []byte, whole bool) (out [][]byte) {
	for line := range bytes.Lines(head) {
		if len(out) == sample || !whole && !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		out = append(out, bytes.TrimRight(line, "\r\n"))
	}
	return out
}

// A lineReader parses the lines of a log, and determines their times.
type lineReader struct {
	log    *Log
	layout timestamp.Layout
	zone   Zone
	clock  Clock // the clock of lines without a zone
	last   stamps
}

// stamps are the last time that a program wrote into a line, and when the container runtime received that line.
type stamps struct {
	Time
	written Time
}

// together is the time within which the container runtime receives the lines that a program writes at once.
const together = time.Second

// apart reports whether a line was written at another moment than the last one that has a time of its own: it then has the
// container runtime's time alone, also if it looks as if it belonged to that line.
func (s stamps) apart(written Time) bool {
	least, _, ok := written.Since(s.written)
	return ok && least > together
}

func (l *Log) reader(head []byte) *lineReader {
	lines := headLines(head, len(head) < learnt)
	t := &lineReader{log: l, layout: timestamp.Learn(lines), zone: l.Zone, clock: l.clock()}
	if z, ok := byPrefix(t.layout, lines); ok {
		t.zone = z
	}
	return t
}

// byNeighbours finds the time zone of the times without one in a log that has others, as that of an agent with its proxy's:
// the lines of a log come in the order of their times. The zone is known only if all lines have the same one.
func byNeighbours(layout timestamp.Layout, lines [][]byte) (z Zone, ok bool) {
	const apart = time.Minute
	var before time.Time // the time with a zone in the last line that has a time
	for _, line := range lines {
		r := layout.Read(line)
		switch {
		case !r.HasOwn:
			continue
		case r.Own.Zoned && !r.Own.NoYear && r.Own.Form != timestamp.Uptime:
			before = r.Own.Wall
			continue
		case before.IsZero() || r.Own.NoYear:
			before = time.Time{}
			continue
		}
		offset, rest := r.Own.Offset(before)
		if rest < -apart/60 || rest > apart || ok && offset != z.Offset {
			return Zone{}, false
		}
		z, ok = Zone{Offset: offset, Known: true, Why: "the times with a zone in the lines before"}, true
		before = before.Add(rest)
	}
	return z, ok
}

// byPrefix finds the time zone of a program's times by comparing them with the times that the container runtime wrote
// before the lines. The zone is known only if all lines have the same one.
func byPrefix(layout timestamp.Layout, lines [][]byte) (z Zone, ok bool) {
	const late = 2 * time.Minute // a program may buffer lines before it writes them
	for _, line := range lines {
		r := layout.Read(line)
		if !r.HasOwn || !r.HasWritten || r.Own.Zoned {
			continue
		}
		offset, rest := r.Own.Offset(r.Written.Wall)
		if rest.Abs() > late || ok && offset != z.Offset {
			return Zone{}, false
		}
		z, ok = Zone{Offset: offset, Known: true, Why: "the container runtime's own times before the lines"}, true
	}
	return z, ok
}

// clock returns the clock of lines without a zone. Each log has its own, also two in one file.
func (l *Log) clock() Clock {
	if l.First > 0 {
		return Clock(fmt.Sprintf("log %s:%d", l.Source.File, l.First))
	}
	return Clock("log " + l.Source.File)
}

func (t *lineReader) line(text []byte) Line {
	r := t.layout.Read(text)
	line := Line{Text: r.Text, Continues: r.Continues, Time: t.ownOf(r)}
	switch {
	case line.Time.Known():
		t.last = stamps{line.Time, writtenAt(r)}
	case line.Continues && t.last.Known() && !t.last.apart(writtenAt(r)):
		line.Time = t.last.Time
	default:
		line.Time = writtenAt(r)
	}
	return line
}

// ownOf returns the time that a program wrote into a line, if there is one.
func (t *lineReader) ownOf(r timestamp.Reading) Time {
	if !r.HasOwn {
		return Time{}
	}
	return t.own(r.Own, writtenAt(r))
}

// writtenAt returns the time at which the container runtime received a line, if it wrote it before the line.
func writtenAt(r timestamp.Reading) Time {
	if !r.HasWritten {
		return Time{}
	}
	return Time{At: r.Written.Wall, Error: r.Written.Resolution, Clock: NodeClock}
}

// own returns the time of a stamp that the program itself wrote into a line. written is the time that the container
// runtime wrote before the line, if it is known.
func (t *lineReader) own(s timestamp.Stamp, written Time) Time {
	if s.Form == timestamp.Uptime {
		return t.sinceStart(s, written)
	}
	near := t.near(s, written)
	if !s.Zoned && !t.zone.Known {
		if s.NoDate { // the clock of a log without dates and without a zone begins at midnight of its first day
			return Time{At: s.Wall, Error: s.Resolution, Clock: t.clock}
		}
		return Time{At: s.Instant(0, near), Error: s.Resolution, Clock: t.clock}
	}
	if near.IsZero() && (s.NoDate || s.NoYear) {
		return Time{}
	}
	at := Time{At: s.Instant(t.zone.Offset, near), Error: s.Resolution, Clock: NodeClock}
	if !s.Zoned && !s.NoDate && !t.log.holds(at) { // a second program or library in the container, with another zone than most lines
		at.At = s.Instant(0, near)
		if !t.log.holds(at) {
			return Time{}
		}
	}
	return at
}

// sinceStart returns the time of a line that has only the time since its program's start. The program starts up to some
// time after its container. The container runtime's own time is more exact.
func (t *lineReader) sinceStart(s timestamp.Stamp, written Time) Time {
	switch {
	case written.Known():
		return written
	case t.log.from.IsZero():
		return Time{}
	}
	return Time{At: t.log.from.Add(s.Since), Error: SinceStart, Clock: NodeClock}
}

// SinceStart is the error of a time that a line has only relative to its program's start: a second, since that is the
// resolution of the start in the status, and another until the container's program begins.
const SinceStart = 2 * time.Second

// aside is the time by which the lines of a log may lie outside of its run. Farther lines are of another time, or by
// another clock.
const aside = 2 * time.Minute

// Before reports whether a time lies so long before the run of the log that it is of something else: a program printed,
// or followed, what was written in another run.
func (l *Log) Before(t Time) bool {
	return t.Known() && t.Clock == NodeClock && !l.from.IsZero() && l.from.Sub(t.Latest()) > aside
}

// holds reports whether a time may lie in the run of the log.
func (l *Log) holds(t Time) bool {
	return !l.Before(t) && (l.to.IsZero() || t.At.Sub(l.to) <= aside)
}

// near returns the instant by which [timestamp.Stamp.Instant] completes a missing date or year. It returns the zero
// time if no such instant is known.
func (t *lineReader) near(s timestamp.Stamp, written Time) time.Time {
	switch {
	case t.last.Known() && t.last.Clock != NodeClock: // the log has its own clock
		return t.last.At
	case written.Known() && s.NoDate:
		return written.At.Add(-12 * time.Hour)
	case written.Known():
		return written.At
	case t.last.Known():
		return t.last.At.Add(-maxSlack)
	case t.log.from.IsZero():
		return time.Time{}
	}
	return t.log.from.Add(-maxSlack)
}

// window sets the start and the end of the log's run. If the end of the run is not known, it is the time at which the
// evidence was taken.
func (l *Log) window(r *Run, taken Time) {
	if r == nil || !r.Started.Known() {
		return
	}
	l.from = r.Started.At
	switch {
	case r.Finished.Known():
		l.to = r.Finished.Latest()
	case taken.Known():
		l.to = taken.Latest()
	}
}

// ends returns the first and the last stamp of a log whose times name no zone, and the zone if other lines show it. It
// returns false if the log has a prefix of the container runtime, or if its end cannot be read without the rest.
func (l *Log) ends(ctx context.Context) (first, last timestamp.Stamp, zone Zone, ok bool) {
	if l.tail == nil {
		return first, last, zone, false
	}
	from, err := l.open(ctx)
	if err != nil {
		return first, last, zone, false
	}
	defer from.Close()
	head := make([]byte, learnt)
	n, err := io.ReadFull(from, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return first, last, zone, false
	}
	lines := headLines(head[:n], n < learnt)
	layout := timestamp.Learn(lines)
	if layout.Prefix != timestamp.NoPrefix {
		return first, last, zone, false
	}
	zone, _ = byNeighbours(layout, lines)
	first, ok = firstStamp(layout, slices.Values(lines))
	if !ok {
		return first, last, zone, false
	}
	end, err := l.tail(learnt)
	if err != nil {
		return first, last, zone, false
	}
	lines = lines[:0]
	for line := range bytes.Lines(end) {
		lines = append(lines, bytes.TrimRight(line, "\r\n"))
	}
	slices.Reverse(lines)
	last, ok = firstStamp(layout, slices.Values(lines))
	return first, last, zone, ok
}

func firstStamp(layout timestamp.Layout, lines iter.Seq[[]byte]) (timestamp.Stamp, bool) {
	for line := range lines {
		if r := layout.Read(line); r.HasOwn && !r.Own.Zoned && (r.Own.Form == layout.Form) {
			return r.Own, true
		}
	}
	return timestamp.Stamp{}, false
}

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Show returns a line in a form that is safe to show: without colours, with control characters made harmless, and
// with secrets masked unless secrets is set.
func Show(text []byte, secrets bool) string {
	text = colours.ReplaceAll(text, nil)
	if !secrets {
		text = mask.Line(text)
	}
	return visible.Plain(string(text))
}

// Quote returns a line of the log, as [Show] shows it.
func (l *Log) Quote(line Line, secrets bool) Quote {
	return Quote{l.At(line), line.Time, Show(line.Text, secrets)}
}

// InLikelyZone returns a copy of the log for which the likely zone counts as known, and a quote that states this
// assumption. Both are the log itself and nil if its zone is known, or none is likely.
func (l *Log) InLikelyZone() (*Log, *Quote) {
	if l.Zone.Known || !l.Zone.HasLikely {
		return l, nil
	}
	placed := *l
	placed.Zone.Offset, placed.Zone.Known = l.Zone.Likely, true
	return &placed, &Quote{Source: l.Source, Text: fmt.Sprintf("its times have no zone: UTC%+.1f h is assumed, with which the log begins within a minute after its run", l.Zone.Likely.Hours())}
}
