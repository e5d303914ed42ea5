package timestamp

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// These are the parts of the expressions of the notations. They take no number that is out of range, so that only the
// length of the month is left to check.
const (
	year  = `(?P<year>19[7-9]\d|2[01]\d\d)`
	month = `(?P<month>0?[1-9]|1[0-2])`
	name  = `(?P<name>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:tember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)`
	day   = `(?P<day>0?[1-9]|[12]\d|3[01])`
	// Java puts a narrow space before AM.
	clock = `(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d):(?P<second>[0-5]\d|60)(?:[.,:](?P<fraction>\d+))?(?:[ \x{202f}]?(?P<half>AM|am|PM|pm)\b)?`
	// An offset after a space has minutes. Other zone names than these are ambiguous.
	hours, minutes = `[+-](?:0\d|1[0-4])`, `:?(?:00|15|30|45)`
	zone           = `(?:(?P<spaced> +` + hours + minutes + `)|(?: *(?:UTC|GMT))?(?P<offset>` + hours + `(?:` + minutes + `)?)|(?P<utc>Z\b| *(?:UTC|GMT)\b))?`
)

// farthest is the end of a stamp in its text.
const farthest = 80

// A notation is a form with its expression: the stamp, and what may follow it.
type notation struct {
	form Form
	*regexp.Regexp
}

func notate(form Form, date, after string) notation {
	return notation{form, regexp.MustCompile(`^(` + date + clock + zone + `)(?:` + after + `\D|$)`)}
}

var (
	iso        = notate(ISO, year+`[-/.]`+month+`[-/.]`+day+`(?:[Tt_:]| +)`, ``)
	dayFirst   = notate(Named, day+`[-/ ]`+name+`[-/ ]`+year+`(?::| +)`, ``)
	monthFirst = notate(Named, name+`\.? +`+day+`(?:,? +`+year+`[, ] *| +)`, ` *(?P<after>19[7-9]\d|2[01]\d\d)(?:[^-\d]|$)|`) // C writes the year last
	klog       = notate(Klog, `[IWEFD]`+year+`?(?P<month>0[1-9]|1[0-2])(?P<day>0[1-9]|[12]\d|3[01]) +`, ``)                   // glog the year too
	timeOfDay  = notate(Clock, ``, ``)
)

// numeric reads a stamp that begins with a digit. If first is set, it may be a clock without a date, or an epoch.
func numeric(text []byte, first bool) (Stamp, bool) {
	rest := bytes.TrimLeft(text, "0123456789")
	switch digits := len(text) - len(rest); {
	case digits == 4:
		return iso.read(text)
	case digits <= 2 && !bytes.HasPrefix(rest, []byte{':'}):
		return dayFirst.read(text)
	case digits <= 2 && first:
		return timeOfDay.read(text)
	case first:
		return epoch(text)
	}
	return Stamp{}, false
}

// read reads the stamp with which a text begins.
func (n notation) read(text []byte) (s Stamp, ok bool) {
	text = text[:min(len(text), farthest)]
	at := n.FindSubmatchIndex(text)
	if at == nil {
		return s, false
	}
	s = Stamp{Form: n.form, NoDate: n.form == Clock, Resolution: time.Second, End: at[3]}
	year, month, day, hour, minute, second, nanos, offset := 0, 1, 1, 0, 0, 0, 0, time.Duration(0)
	for i, name := range n.SubexpNames() {
		if at[2*i] < 0 || i < 2 {
			continue
		}
		part := string(text[at[2*i]:at[2*i+1]])
		number, _ := strconv.Atoi(part)
		switch name {
		case "year":
			year = number
		case "after":
			if year == 0 {
				year, s.End = number, at[2*i+1]
			}
		case "name":
			month = strings.Index("JanFebMarAprMayJunJulAugSepOctNovDec", part[:3])/3 + 1
		case "month":
			month = number
		case "day":
			day = number
		case "hour":
			hour = number
		case "minute":
			minute = number
		case "second":
			second = number
		case "fraction":
			nanos, s.Resolution = fraction(part)
		case "half":
			if hour < 1 || hour > 12 {
				return s, false
			}
			if hour %= 12; part[0]|0x20 == 'p' {
				hour += 12
			}
		case "utc":
			s.Zoned = true
		case "spaced", "offset":
			s.Zoned = true
			part = strings.ReplaceAll(strings.TrimSpace(part), ":", "")
			offset, _ = time.ParseDuration(part[:3] + "h" + (part[3:] + "00")[:2] + "m")
		}
	}
	s.NoYear = year == 0
	s.Wall = time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC).Add(-offset)
	return s, time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Day() == day
}

// fraction reads the digits of a fraction of a second. It cuts them at nanoseconds.
func fraction(digits string) (nanos int, resolution time.Duration) {
	resolution = time.Second
	for range min(len(digits), 9) {
		resolution /= 10
	}
	nanos, _ = strconv.Atoi((digits + "000000000")[:9])
	return nanos, resolution
}

// since1970 matches 1795490299.480, but not 1.7954902994801e+09, which is too imprecise.
var since1970 = regexp.MustCompile(`^([1-6]\d{9})((?:\d{3}){0,3})(?:\.(\d+))?(?:[^\deE]|$)`)

// epoch reads seconds, or fractions of them, since 1970; the magnitude tells the unit.
func epoch(text []byte) (Stamp, bool) {
	text = text[:min(len(text), farthest)]
	at := since1970.FindSubmatchIndex(text)
	if at == nil {
		return Stamp{}, false
	}
	s := Stamp{Form: Epoch, Zoned: true, End: at[5]}
	parts := string(text[at[4]:at[5]])
	if at[6] >= 0 {
		parts += string(text[at[6]:at[7]])
		s.End = at[7]
	}
	whole, _ := strconv.ParseInt(string(text[:at[3]]), 10, 64)
	nanos, resolution := fraction(parts)
	s.Resolution = resolution
	s.Wall = time.Unix(whole, int64(nanos)).UTC()
	return s, true
}

// timeKeys are the names of the time field in the usual logging libraries.
var timeKeys = map[string]bool{
	"time": true, "ts": true, "t": true, "timestamp": true, "@timestamp": true, "Timestamp": true, "@t": true, "date": true,
	"datetime": true, "asctime": true, "timeMillis": true, "epochSecond": true, "start_time": true, "Time": true, "time_local": true,
	"time_iso8601": true, "msec": true, "eventTime": true, "seconds": true, "log_time": true, "logged_at": true, "when": true,
}

// nanosBeside matches the nanoseconds that log4j and protobuf write in a field beside the seconds.
var nanosBeside = regexp.MustCompile(`^,"nano(?:OfSecond|s)":(\d{1,9})`)

// inJSON returns the first stamp that is the value of a time field, in an object that begins at i.
func inJSON(line []byte, i int) (Stamp, bool) {
	for i < len(line) {
		q := bytes.IndexByte(line[i:], '"')
		if q < 0 {
			break
		}
		begin := i + q + 1
		end := stringEnd(line, begin)
		i = end + 1
		value, isKey := bytes.CutPrefix(bytes.TrimLeft(line[min(i, len(line)):], " "), []byte(":"))
		if !isKey {
			continue
		}
		value = bytes.TrimLeft(value, " ")
		i = len(line) - len(value)
		if !timeKeys[string(line[begin:end])] {
			continue
		}
		if s, ok := at(line, len(line)-len(bytes.TrimPrefix(value, []byte{'"'})), true); ok {
			if m := nanosBeside.FindSubmatchIndex(line[s.End:min(len(line), s.End+farthest)]); m != nil {
				n, _ := strconv.Atoi(string(line[s.End+m[2] : s.End+m[3]]))
				s.Wall, s.Resolution, s.End = s.Wall.Add(time.Duration(n)), 1, s.End+m[1]
			}
			s.Form = JSON
			return s, true
		}
	}
	return Stamp{}, false
}

// stringEnd returns where a JSON string ends: at its quote, or at the end of the line.
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
