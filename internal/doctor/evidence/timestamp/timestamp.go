// Package timestamp finds the time in a log line, in any of the layouts of the usual runtimes, even if
// the line contains only a part of a time.
//
// A [Stamp] contains only what the line shows, including the resolution, and whether the line has a zone,
// a year and a date. [Learn] finds the [Layout] of a log from its first lines. [Layout.Read] parses a line
// into the container runtime's prefix, the stamp that the program wrote, and the text. [Fits] returns the
// time zones in which stamps without a zone lie in a given interval.
//
// The scanner is written by hand, without regular expressions, so that a log of a gigabyte is read in
// seconds.
package timestamp

import (
	"bytes"
	"slices"
	"time"
)

// A Stamp is the time in a line, perhaps without zone, year or date.
type Stamp struct {
	Wall       time.Time     // if Zoned, the instant; else the digits of the line, read as if they were UTC
	Resolution time.Duration // the instant is in [Wall, Wall+Resolution)
	Zoned      bool          // the line names the zone, or has a number of seconds since 1970
	NoYear     bool          // the line has no year; Wall is in year 0
	NoDate     bool          // the line has no date; Wall is on January 1st of year 0
	Since      time.Duration // of form Uptime: the time since the program's start; there is no Wall
	Form       Form
	At, End    int // begin and end of the stamp in the line
}

// A Form is a notation of a time.
type Form string

// The forms.
const (
	ISO   Form = "iso"   // 2026-11-24T03:18:19.480Z, 2026/11/24 03:18:19, 2026-11-24 03:18:19,480
	Named Form = "named" // Nov 24, 2026 3:18:19 AM; 24/Nov/2026:03:18:19 +0000; Nov 24 03:18:19
	Klog  Form = "klog"  // I1124 03:18:19.480123
	Clock Form = "clock" // 03:18:19.480
	Epoch Form = "epoch" // 1795490299.480
	JSON  Form = "json"  // a field of a JSON object, whose value has any of these forms

	Uptime Form = "uptime" // [     1.700000s]: seconds since the program's start, as linkerd2-proxy and Java's -Xlog write them
)

const (
	reach     = 160  // first bytes of a line in which a stamp must begin
	jsonReach = 4096 // first bytes of a line with a JSON object in which the stamp must be
)

// Find returns the first stamp near the beginning of a line, and false if there is none.
func Find(line []byte) (Stamp, bool) {
	start := skipColours(line, 0)
	if start < len(line) && line[start] == '{' {
		return inJSON(line[:min(len(line), jsonReach)], start)
	}
	if s, ok := uptime(line, start); ok {
		return s, true
	}
	for i := 0; i < min(len(line), reach); {
		if next := skipColours(line, i); next != i {
			i = next
			continue
		}
		if beginsToken(line, i) {
			if s, ok := at(line, i, i == start); ok && !ofOther(line[start:i], line[s.End:]) {
				return s, true
			}
		}
		i++
	}
	return Stamp{}, false
}

// All returns the stamps with a date that are anywhere in a line, also in fields of a JSON object and in texts that the
// line quotes: of long lines, in the first bytes.
func All(line []byte) (out []Stamp) {
	line = line[:min(len(line), jsonReach)]
	for i := 0; i < len(line) && len(out) < mostStamps; i++ {
		if !digit(line, i) && (line[i] < 'A' || line[i] > 'S') {
			continue
		}
		field := dated(line, i)
		if !field && !beginsToken(line, i) {
			continue
		}
		if s, ok := at(line, i, field); ok && !s.NoDate {
			out = append(out, s)
			i = max(i, s.End-1)
		}
	}
	return out
}

// mostStamps is the largest number of stamps of one line.
const mostStamps = 16

// dated reports whether a number is the value of a field whose name ends as those of times do: failed_at, finishedAt,
// timestamp.
func dated(line []byte, i int) bool {
	if i > 0 && line[i-1] == '"' {
		i--
	}
	name := bytes.TrimRight(line[:i], ` "`)
	if len(name) == 0 || name[len(name)-1] != '=' && name[len(name)-1] != ':' {
		return false
	}
	name = bytes.TrimRight(name[:len(name)-1], ` "`)
	return slices.ContainsFunc(timeEndings, func(end []byte) bool { return bytes.HasSuffix(name, end) })
}

var timeEndings = [][]byte{[]byte("_at"), []byte("At"), []byte("time"), []byte("Time"), []byte("ts"), []byte("date"), []byte("Date"), []byte("timestamp")}

// at reads the stamp that begins at i. first means that i is the beginning of the line. Some forms are accepted only
// at the beginning, perhaps in brackets, because such numbers are usually no times elsewhere.
func at(line []byte, i int, first bool) (Stamp, bool) {
	if i >= len(line) {
		return Stamp{}, false
	}
	first = first || i > 0 && line[i-1] == '[' && skipColours(line, 0) == i-1
	c := scan{text: line, i: i}
	var s Stamp
	var ok bool
	switch b := line[i]; {
	case b >= '0' && b <= '9':
		s, ok = c.numeric(first || keyed(line, i))
	case first && bytes.IndexByte(levels, b) >= 0 && digit(line, i+1):
		s, ok = c.klog()
	case b >= 'A' && b <= 'S':
		s, ok = c.monthFirst()
	}
	s.At, s.End = i, c.i
	return s, ok && !digit(line, c.i)
}

// levels are the letters with which klog and glog begin a line.
var levels = []byte("IWEFD")

// beginsToken reports whether a time may begin at i, because i is not within a word, a number, a path or a name.
func beginsToken(line []byte, i int) bool {
	if i == 0 {
		return true
	}
	switch b := line[i-1]; {
	case b == ':':
		return i > 1 && letter(line[i-2])
	case b == 'm': // the end of a colour sequence
		esc := bytes.LastIndexByte(line[:i], 0x1b)
		return esc >= 0 && skipColours(line, esc) == i
	case b == '-', b == '/', b == '.', b == '_', b == '+', b >= '0' && b <= '9', letter(b), b >= 0x80:
		return false
	}
	return true
}

// keyed reports whether a number is the value of a time field, as in ts=1795490299.
func keyed(line []byte, i int) bool {
	k := bytes.LastIndexByte(line[:i], ' ') + 1
	if i <= k || line[i-1] != '=' {
		return false
	}
	return timeKeys[string(line[k:i-1])]
}

// skipColours returns the position after the terminal's colour sequences that begin at i, or i if there are none.
func skipColours(line []byte, i int) int {
	for i+1 < len(line) && line[i] == 0x1b && line[i+1] == '[' {
		end := i + 2
		for end < len(line) && end < i+20 && (line[end] == ';' || line[end] >= '0' && line[end] <= '9') {
			end++
		}
		if end >= len(line) || line[end] < '@' || line[end] > '~' {
			return i
		}
		i = end + 1
	}
	return i
}

func letter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

func digit(line []byte, i int) bool { return i < len(line) && line[i] >= '0' && line[i] <= '9' }

// Instant returns the time of s in the zone with the given offset from UTC. If s has no date, the result is the first
// instant with this time of day that is not earlier than near. If s has a date without a year, the result is in the
// year that brings it closest to near.
func (s Stamp) Instant(offset time.Duration, near time.Time) time.Time {
	if s.Zoned && !s.NoYear {
		return s.Wall
	}
	if s.Zoned {
		offset = 0
	}
	w := s.Wall
	switch {
	case s.NoDate:
		local := near.UTC().Add(offset)
		t := time.Date(local.Year(), local.Month(), local.Day(), w.Hour(), w.Minute(), w.Second(), w.Nanosecond(), time.UTC).Add(-offset)
		if t.Before(near) {
			t = t.AddDate(0, 0, 1)
		}
		return t
	case s.NoYear:
		best := time.Time{}
		for year := near.Year() - 1; year <= near.Year()+1; year++ {
			t := time.Date(year, w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), w.Nanosecond(), time.UTC).Add(-offset)
			if best.IsZero() || t.Sub(near).Abs() < best.Sub(near).Abs() {
				best = t
			}
		}
		return best
	}
	return w.Add(-offset)
}

// The range of the offsets that [Fits] tries: all offsets of zones that are in use are multiples of quarter in it.
const (
	west    = -12 * time.Hour
	east    = 14 * time.Hour
	quarter = 15 * time.Minute
)

// Fits returns the offsets from UTC for which the first and the last stamp of a log both lie between from and to. If
// to is zero, the end is not known. A stamp may lie outside by up to slack.
func Fits(first, last Stamp, from, to time.Time, slack time.Duration) (out []time.Duration) {
	for offset := west; offset <= east; offset += quarter {
		begin := first.Instant(offset, from.Add(-slack))
		end := last.Instant(offset, begin)
		if !begin.Before(from.Add(-slack)) && !end.Before(begin.Add(-slack)) && (to.IsZero() || !end.After(to.Add(slack))) {
			out = append(out, offset)
		}
	}
	return out
}

// Offset returns the offset of the zone in which a stamp without a zone means about the given instant. The offset is
// a multiple of a quarter of an hour; rest is the difference that remains.
func (s Stamp) Offset(instant time.Time) (offset, rest time.Duration) {
	near := s
	if s.NoDate { // take the nearest time, not the first after the instant
		t := s.Instant(0, instant.Add(-12*time.Hour))
		near = Stamp{Wall: t}
	}
	ahead := near.Instant(0, instant).Sub(instant)
	offset = ahead.Round(quarter)
	return offset, ahead - offset
}
