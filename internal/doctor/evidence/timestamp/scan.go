package timestamp

import (
	"bytes"
	"time"
)

// A scan is a position in a line.
type scan struct {
	text []byte
	i    int
}

// number reads a number. It reads at most as many digits as the parameter most says, and returns false if there are
// fewer digits than the parameter least says.
func (c *scan) number(least, most int) (n int, ok bool) {
	begin := c.i
	for c.i < len(c.text) && c.i-begin < most && digit(c.text, c.i) {
		n = n*10 + int(c.text[c.i]-'0')
		c.i++
	}
	return n, c.i-begin >= least
}

func (c *scan) peek() byte {
	if c.i < len(c.text) {
		return c.text[c.i]
	}
	return 0
}

func (c *scan) take(b byte) bool {
	if c.peek() == b && c.i < len(c.text) {
		c.i++
		return true
	}
	return false
}

func (c *scan) word(s string) bool {
	if bytes.HasPrefix(c.text[c.i:], []byte(s)) {
		c.i += len(s)
		return true
	}
	return false
}

func (c *scan) spaces() bool {
	begin := c.i
	for c.peek() == ' ' {
		c.i++
	}
	return c.i > begin
}

// numeric reads a stamp that begins with a digit. Only if first is set, it may be a time without a date, or a number
// of seconds since 1970.
func (c *scan) numeric(first bool) (Stamp, bool) {
	digits := 0
	for digit(c.text, c.i+digits) {
		digits++
	}
	switch after := c.at(c.i + digits); {
	case digits == 4 && (after == '-' || after == '/' || after == '.'):
		return c.iso()
	case digits <= 2 && after == ':' && first:
		s := Stamp{Form: Clock, NoDate: true, NoYear: true}
		ok := c.clock(&s, date{month: 1, day: 1})
		return s, ok
	case digits <= 2 && (after == '/' || after == '-' || after == ' '):
		return c.dayFirst()
	case digits >= 10 && first:
		return c.epoch()
	}
	return Stamp{}, false
}

func (c *scan) at(i int) byte {
	if i < len(c.text) {
		return c.text[i]
	}
	return 0
}

// A date is the date of a stamp. The year is 0 if the line has no year.
type date struct{ year, month, day int }

func (d date) valid() bool {
	if d.month < 1 || d.month > 12 || d.day < 1 || d.day > 31 {
		return false
	}
	return d.year == 0 || d.year >= 1970 && d.year < 2200 && time.Date(d.year, time.Month(d.month), d.day, 0, 0, 0, 0, time.UTC).Day() == d.day
}

// iso reads stamps like 2026-11-24T03:18:19.480+08:00.
func (c *scan) iso() (s Stamp, ok bool) {
	var d date
	d.year, _ = c.number(4, 4)
	sep := c.peek()
	c.i++
	if d.month, ok = c.number(1, 2); !ok || !c.take(sep) {
		return s, false
	}
	if d.day, ok = c.number(1, 2); !ok {
		return s, false
	}
	switch c.peek() {
	case 'T', 't', '_', ':':
		c.i++
	case ' ':
		c.spaces()
	default:
		return s, false
	}
	s.Form = ISO
	ok = c.clock(&s, d)
	return s, ok
}

// dayFirst reads stamps like 24/Nov/2026:03:18:19 +0000, 24-Nov-2026 03:18:19 and 24 Nov 2026 03:18:19.
func (c *scan) dayFirst() (s Stamp, ok bool) {
	var d date
	d.day, _ = c.number(1, 2)
	sep := c.peek()
	c.i++
	if d.month = c.month(); d.month == 0 || !c.take(sep) {
		return s, false
	}
	if d.year, ok = c.number(4, 4); !ok || !c.take(':') && !c.spaces() {
		return s, false
	}
	s.Form = Named
	ok = c.clock(&s, d)
	return s, ok
}

// monthFirst reads stamps like Nov 24 03:18:19 (syslog), Nov 24 03:18:19.480 2026 and Nov 24 03:18:19 UTC 2026 (C),
// and Nov 24, 2026 3:18:19 AM (java.util.logging).
func (c *scan) monthFirst() (s Stamp, ok bool) {
	var d date
	if d.month = c.month(); d.month == 0 {
		return s, false
	}
	c.take('.')
	if !c.spaces() {
		return s, false
	}
	if d.day, ok = c.number(1, 2); !ok {
		return s, false
	}
	comma := c.take(',')
	if !c.spaces() {
		return s, false
	}
	mark := c.i
	if d.year, ok = c.number(4, 4); !ok || !c.take(',') && c.peek() != ' ' {
		c.i, d.year = mark, 0
		if comma {
			return s, false
		}
	}
	c.spaces()
	s.Form = Named
	if !c.clock(&s, d) {
		return s, false
	}
	if d.year == 0 {
		d.year = c.yearAfter(d)
	}
	s.NoYear = d.year == 0
	w := s.Wall
	s.Wall = time.Date(d.year, w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), w.Nanosecond(), time.UTC)
	return s, true
}

// yearAfter reads a year after the time, because C writes it there. It returns 0 if there is none.
func (c *scan) yearAfter(d date) int {
	mark := c.i
	c.spaces()
	year, ok := c.number(4, 4)
	d.year = year
	if !ok || digit(c.text, c.i) || c.peek() == '-' || year == 0 || !d.valid() {
		c.i = mark
		return 0
	}
	return year
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

var longMonths = []string{"uary", "ruary", "ch", "il", "", "e", "y", "ust", "tember", "ober", "ember", "ember"}

// month reads the short or long name of a month; it returns 0 if there is none.
func (c *scan) month() int {
	if c.i+3 > len(c.text) {
		return 0
	}
	at := bytes.Index([]byte(months), c.text[c.i:c.i+3])
	if at < 0 || at%3 != 0 {
		return 0
	}
	c.i += 3
	c.word(longMonths[at/3])
	return at/3 + 1
}

// klog reads stamps like I1124 03:18:19.480123, and I20261124 03:18:19.480123 of newer versions of glog.
func (c *scan) klog() (s Stamp, ok bool) {
	c.i++
	digits := 0
	for digit(c.text, c.i+digits) {
		digits++
	}
	var d date
	switch digits {
	case 4:
	case 8:
		d.year, _ = c.number(4, 4)
	default:
		return s, false
	}
	d.month, _ = c.number(2, 2)
	d.day, _ = c.number(2, 2)
	if !c.spaces() {
		return s, false
	}
	s.Form, s.NoYear = Klog, d.year == 0
	ok = c.clock(&s, d)
	return s, ok
}

// clock reads the time of day with its fraction and zone, and sets the fields of s. It returns false if the date d or
// the time is invalid.
func (c *scan) clock(s *Stamp, d date) bool {
	hour, ok := c.number(1, 2)
	if !ok || !d.valid() || !c.take(':') {
		return false
	}
	minute, ok := c.number(2, 2)
	if !ok || !c.take(':') {
		return false
	}
	second, ok := c.number(2, 2)
	if !ok || hour > 23 || minute > 59 || second > 60 {
		return false
	}
	nanos := c.fraction(&s.Resolution)
	if afternoon, there := c.half(); there {
		if hour < 1 || hour > 12 {
			return false
		}
		hour %= 12
		if afternoon {
			hour += 12
		}
	}
	s.Wall = time.Date(d.year, time.Month(d.month), d.day, hour, minute, second, nanos, time.UTC)
	if offset, there := c.zone(); there {
		s.Zoned = true
		s.Wall = s.Wall.Add(-offset)
	}
	return true
}

// fraction reads the fraction of a second, if there is one, and sets the resolution to its last digit.
func (c *scan) fraction(resolution *time.Duration) (nanos int) {
	*resolution = time.Second
	sep := c.peek()
	if sep != '.' && sep != ',' && sep != ':' || !digit(c.text, c.i+1) {
		return 0
	}
	c.i++
	n := 0
	for unit := int(100 * time.Millisecond); digit(c.text, c.i); c.i++ {
		n++
		if unit > 0 {
			nanos += int(c.text[c.i]-'0') * unit
			*resolution = time.Duration(unit)
		}
		unit /= 10
	}
	return nanos
}

// half reads AM or PM. Java writes a narrow no-break space before it.
func (c *scan) half() (afternoon, there bool) {
	mark := c.i
	if !c.take(' ') {
		c.word("\u202f")
	}
	for _, w := range []string{"AM", "am", "PM", "pm"} {
		if c.word(w) && !letter(c.peek()) {
			return w[0]|0x20 == 'p', true
		}
	}
	c.i = mark
	return false, false
}

// zone reads Z, UTC, GMT, offsets like +08:00, or GMT+0800 of JavaScript. Other zone names are ambiguous.
func (c *scan) zone() (offset time.Duration, there bool) {
	mark := c.i
	if c.word("Z") && !letter(c.peek()) {
		return 0, true
	}
	c.i = mark
	c.spaces()
	spaced := c.i > mark
	named := (c.word("UTC") || c.word("GMT")) && !letter(c.peek())
	if named {
		mark, spaced = c.i, false
	}
	if offset, ok := c.offset(spaced); ok {
		return offset, true
	}
	c.i = mark
	return 0, named
}

// offset reads an offset like +08:00 or +0800. An offset without minutes, like +08, counts only if no space precedes
// it.
func (c *scan) offset(spaced bool) (time.Duration, bool) {
	sign := time.Duration(1)
	switch {
	case c.take('-'):
		sign = -1
	case !c.take('+'):
		return 0, false
	}
	hours, ok := c.number(2, 2)
	minutes, whole := 0, !spaced
	if c.take(':') || digit(c.text, c.i) {
		minutes, whole = c.number(2, 2)
	}
	if !ok || !whole || hours > 14 || minutes%15 != 0 || minutes > 59 || digit(c.text, c.i) {
		return 0, false
	}
	return sign * (time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute), true
}

// epoch reads the time since 1970. The unit follows from the number of digits: seconds (10), milliseconds (13),
// microseconds (16) or nanoseconds (19).
func (c *scan) epoch() (s Stamp, ok bool) {
	var n int64
	digits := 0
	for ; digit(c.text, c.i) && digits < 19; c.i++ {
		n = n*10 + int64(c.text[c.i]-'0')
		digits++
	}
	unit := time.Second
	switch {
	case n < 0:
		return s, false
	case digits == 13:
		unit = time.Millisecond
	case digits == 16:
		unit = time.Microsecond
	case digits == 19:
		unit = time.Nanosecond
	case digits != 10:
		return s, false
	}
	s = Stamp{Form: Epoch, Zoned: true, Resolution: unit}
	if unit == time.Second {
		s.Wall = time.Unix(n, 0).UTC()
	} else {
		per := int64(time.Second / unit)
		s.Wall = time.Unix(n/per, n%per*int64(unit)).UTC()
	}
	if c.peek() == '.' && digit(c.text, c.i+1) {
		var part time.Duration
		nanos := c.fraction(&part)
		s.Resolution = max(time.Duration(int64(part)*int64(unit)/int64(time.Second)), 1)
		s.Wall = s.Wall.Add(time.Duration(int64(nanos) * int64(unit) / int64(time.Second)))
	}
	if year := s.Wall.Year(); year < 2001 || year >= 2200 {
		return s, false
	}
	if c.peek() == 'e' || c.peek() == 'E' { // 1.7954902994801e+09 is too imprecise
		return s, false
	}
	return s, true
}

// uptime reads a number of seconds since the program's start, at the beginning of a line: 0.001714s, perhaps in
// brackets, with spaces before it. Only a number with a fraction and its unit counts, because other numbers there have
// other meanings.
func uptime(line []byte, i int) (Stamp, bool) {
	c := scan{text: line, i: i}
	bracket := c.take('[')
	c.spaces()
	s := Stamp{Form: Uptime, Zoned: true, At: i}
	seconds, ok := c.number(1, 9)
	if !ok || c.peek() != '.' || !digit(line, c.i+1) {
		return Stamp{}, false
	}
	s.Since = time.Duration(seconds)*time.Second + time.Duration(c.fraction(&s.Resolution))
	s.End = c.i
	switch {
	case !c.take('s'):
		return Stamp{}, false
	case bracket:
		return s, c.take(']')
	}
	return s, c.peek() == ' ' && s.Resolution <= time.Microsecond // 1.5s is usually how long something took
}

// timeKeys are the names of the time field in the usual logging libraries.
var timeKeys = map[string]bool{
	"time": true, "ts": true, "t": true, "timestamp": true, "@timestamp": true, "Timestamp": true, "@t": true, "date": true,
	"datetime": true, "asctime": true, "timeMillis": true, "epochSecond": true, "start_time": true, "Time": true, "time_local": true,
	"time_iso8601": true, "msec": true, "eventTime": true, "seconds": true, "log_time": true, "logged_at": true, "when": true,
}

// inJSON returns the first stamp that is the value of a time field in a JSON object; the object begins at i.
func inJSON(line []byte, i int) (Stamp, bool) {
	for i < len(line) {
		q := bytes.IndexByte(line[i:], '"')
		if q < 0 {
			break
		}
		begin := i + q + 1
		end := stringEnd(line, begin)
		i = end + 1
		v, isKey := afterColon(line, i)
		if !isKey {
			continue
		}
		if !timeKeys[string(line[begin:end])] {
			i = v
			continue
		}
		if line[v] == '"' {
			v++
		}
		if s, ok := at(line, v, true); ok {
			s = withNanos(line, s)
			s.Form = JSON
			return s, true
		}
		i = v
	}
	return Stamp{}, false
}

// afterColon returns the position of the value after a string that ends at i. It returns false if that string is not
// a key.
func afterColon(line []byte, i int) (int, bool) {
	c := scan{text: line, i: min(i, len(line))}
	c.spaces()
	isKey := c.take(':')
	c.spaces()
	return c.i, isKey && c.i < len(line)
}

// withNanos adds the nanoseconds, which log4j and protobuf write into a separate field after the seconds.
func withNanos(line []byte, s Stamp) Stamp {
	for _, key := range []string{`,"nanoOfSecond":`, `,"nanos":`} {
		c := scan{text: line, i: s.End}
		if c.word(key) {
			if n, ok := c.number(1, 9); ok {
				s.Wall, s.Resolution, s.End = s.Wall.Add(time.Duration(n)), 1, c.i
			}
		}
	}
	return s
}

// stringEnd returns the position of the quote that ends a JSON string, or the end of the line if there is none.
func stringEnd(line []byte, i int) int {
	for ; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(line)
}
