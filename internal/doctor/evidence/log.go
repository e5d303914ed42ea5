package evidence

import (
	"bufio"
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

// A Log is that of one run of a container.
type Log struct {
	Source    Source
	Container string
	Run       int // its number; -1: not known
	Previous  bool
	Truncated bool // the input has a part of it only
	Zone      Zone

	from, to time.Time // of the run; zero: not known
	open     func(context.Context) (io.ReadCloser, error)
	tail     func(most int) ([]byte, error) // its end; nil: it has to be read for that
}

// A Line is one of a log. Text is valid until the next one is yielded.
type Line struct {
	Number    int
	Text      []byte // without what the container runtime writes before it, and without its end
	Time      Time   // its own; else when the runtime got it; else not known
	Written   Time   // when the runtime got it
	Continues bool   // it belongs to the line before; Time is that line's
	Cut       bool   // it was longer than [MaxLine]
	Outside   bool   // its own time is not in the run
	NoDate    bool   // its own time has no date: it is the first that fits, after the line before
}

// At is the source of a line.
func (l *Log) At(line Line) Source {
	s := l.Source
	s.Line = line.Number
	return s
}

const (
	// MaxLine is how much of a line is read.
	MaxLine = 64 << 10

	learnt = 64 << 10 // what the layout of a log is learnt from
	sample = 200      // lines of it
)

// Lines yields the lines of the log in order. After an error there is no other line.
func (l *Log) Lines(ctx context.Context) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		from, err := l.open(ctx)
		if err != nil {
			yield(Line{}, fmt.Errorf("reading %s: %w", l.Source, err))
			return
		}
		defer from.Close()
		in := bufio.NewReaderSize(from, MaxLine)
		head, err := in.Peek(learnt)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			yield(Line{}, fmt.Errorf("reading %s: %w", l.Source, err))
			return
		}
		t := l.reader(head)
		for number := 1; ; number++ {
			text, cut, err := nextLine(in)
			if err == io.EOF || ctx.Err() != nil {
				if err := ctx.Err(); err != nil {
					yield(Line{}, err)
				}
				return
			}
			if err != nil {
				yield(Line{}, fmt.Errorf("reading %s, line %d: %w", l.Source, number, err))
				return
			}
			line := t.line(text)
			line.Number, line.Cut = number, cut
			if !yield(line, nil) {
				return
			}
		}
	}
}

// nextLine reads a line without its end, and passes over the rest of a very long one.
func nextLine(in *bufio.Reader) (text []byte, cut bool, err error) {
	text, err = in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		text, cut = bytes.Clone(text), true
		for err == bufio.ErrBufferFull {
			_, err = in.ReadSlice('\n')
		}
	}
	if err == io.EOF && len(text) > 0 {
		err = nil
	}
	return bytes.TrimRight(text, "\r\n"), cut, err
}

// headLines are the whole lines at the beginning of a log.
func headLines(head []byte, whole bool) (out [][]byte) {
	for line := range bytes.Lines(head) {
		if len(out) == sample || !whole && !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		out = append(out, bytes.TrimRight(line, "\r\n"))
	}
	return out
}

// A lineReader gives the lines of a log their times.
type lineReader struct {
	log    *Log
	layout timestamp.Layout
	zone   Zone
	clock  Clock // of lines without a zone
	last   Time
	end    time.Time
}

func (l *Log) reader(head []byte) *lineReader {
	lines := headLines(head, len(head) < learnt)
	t := &lineReader{log: l, layout: timestamp.Learn(lines), zone: l.Zone, clock: Clock("log " + l.Source.File), end: l.to}
	if z, ok := byPrefix(t.layout, lines); ok {
		t.zone = z
	}
	if t.end.IsZero() {
		t.end = l.from.AddDate(100, 0, 0)
	}
	return t
}

// byPrefix finds the zone from the runtime's stamps: all lines must agree on it.
func byPrefix(layout timestamp.Layout, lines [][]byte) (z Zone, ok bool) {
	const late = 2 * time.Minute // a program may keep lines back before it writes them
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

func (t *lineReader) line(text []byte) Line {
	r := t.layout.Read(text)
	line := Line{Text: r.Text, Continues: r.Continues}
	if r.HasWritten {
		line.Written = Time{At: r.Written.Wall, Error: r.Written.Resolution, Clock: NodeClock}
	}
	if r.HasOwn {
		line.Time, line.Outside = t.own(r.Own, line.Written)
		line.NoDate = r.Own.NoDate && !r.HasWritten
	}
	switch {
	case line.Time.Known():
		t.last = line.Time
	case line.Continues && t.last.Known():
		line.Time = t.last
	default:
		line.Time = line.Written
	}
	return line
}

// own places a program's own stamp.
func (t *lineReader) own(s timestamp.Stamp, written Time) (at Time, outside bool) {
	near := t.near(s, written)
	if !s.Zoned && !t.zone.Known {
		if s.NoDate { // hours and minutes alone: a time since the first midnight
			return Time{At: s.Wall, Error: s.Resolution, Clock: t.clock}, false
		}
		return Time{At: s.Instant(0, near), Error: s.Resolution, Clock: t.clock}, false
	}
	if near.IsZero() && (s.NoDate || s.NoYear) {
		return Time{}, false
	}
	at = Time{At: s.Instant(t.zone.Offset, near), Error: s.Resolution, Clock: NodeClock}
	outside = !t.log.from.IsZero() && (at.Latest().Before(t.log.from.Add(-maxSlack)) || at.At.After(t.end.Add(maxSlack)))
	return at, outside
}

// near is the instant to which what is missing of a date is completed.
func (t *lineReader) near(s timestamp.Stamp, written Time) time.Time {
	switch {
	case t.last.Known() && t.last.Clock != NodeClock: // of the log's own clock
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

// window is the span of the run, as far as it is known.
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

// ends returns the first and the last stamp of a log whose lines name no zone, if its ends can be
// read without the rest.
func (l *Log) ends(ctx context.Context) (first, last timestamp.Stamp, ok bool) {
	if l.tail == nil {
		return first, last, false
	}
	from, err := l.open(ctx)
	if err != nil {
		return first, last, false
	}
	defer from.Close()
	head := make([]byte, learnt)
	n, err := io.ReadFull(from, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return first, last, false
	}
	lines := headLines(head[:n], n < learnt)
	layout := timestamp.Learn(lines)
	if layout.Prefix != timestamp.NoPrefix {
		return first, last, false
	}
	first, ok = firstStamp(layout, slices.Values(lines))
	if !ok {
		return first, last, false
	}
	end, err := l.tail(learnt)
	if err != nil {
		return first, last, false
	}
	lines = lines[:0]
	for line := range bytes.Lines(end) {
		lines = append(lines, bytes.TrimRight(line, "\r\n"))
	}
	slices.Reverse(lines)
	last, ok = firstStamp(layout, slices.Values(lines))
	return first, last, ok
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

// Show is a line as it may be shown: without colours, with control characters made harmless; and
// with secrets masked, unless they are to be shown.
func Show(text []byte, secrets bool) string {
	text = colours.ReplaceAll(text, nil)
	if !secrets {
		text = mask.Line(text)
	}
	return visible.Plain(string(text))
}
