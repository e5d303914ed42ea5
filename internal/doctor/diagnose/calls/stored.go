package calls

import (
	"regexp"
	"strings"
	"time"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/timestamp"
	"outrider.dev/internal/doctor/evidence/why"
)

// Differences of times from which on an error that a line prints is not of the line's own time.
const (
	old    = 5 * time.Minute
	oldDay = 25 * time.Hour // of times without a zone, which may be up to a day apart
)

// isStored reports whether a line prints an error of another time: a record of an earlier run, a text that a person
// wrote. Such an error is no call of this run.
//
// A date of another time is not enough if the line itself is a warning or an error: the record that could not be saved
// may have one too. If the line has no level, the date must be of another day, or words must say that it is of a
// record.
func isStored(line evidence.Line) bool {
	lower := strings.ToLower(string(line.Text))
	if earlier.MatchString(lower) || isObject(lower) {
		return true
	}
	level := why.LevelOf(string(line.Text))
	if level < why.Error && isQuoted(lower) || (level == why.Info || level == why.Debug) && kept.MatchString(lower) {
		return true
	}
	limit := old
	if !record.MatchString(lower) && level != why.Info && level != why.Debug {
		limit = oldDay
	}
	return (limit == old || level == why.NoLevel) && isDated(line, limit)
}

// isObject reports whether a line has an object of Kubernetes or a part of one, as exporters of events and controllers
// write them: what such an event or status says befell another program.
func isObject(lower string) bool {
	return ofEvent.MatchString(lower) && reasonOf.MatchString(lower) || statusOf.MatchString(lower)
}

var (
	ofEvent  = regexp.MustCompile(`\\?"?\b(?:involvedobject|regarding|event_?object|reportingcomponent|reporting_component|event\.involvedobject[a-z.]*)\\?"?\s*[:=]|\bkind=?:? ?\\?"?event\b|\bobjectreference\{`)
	reasonOf = regexp.MustCompile(`\breason\\?"?\s*[:=]`)
	statusOf = regexp.MustCompile(`\\?"(?:laststate|containerstatuses|lastterminationstate)\\?"\s*:`)
)

// placed returns a line with a time, if it has none itself: a time within its run, beside which the dates in it are of
// another day or not.
func placed(line evidence.Line, within evidence.Time) evidence.Line {
	if !line.Time.Known() {
		line.Time = within
	}
	return line
}

// belongs reports whether the line of a hit belongs to one that prints an error of another time, as the frames of its
// stack trace.
func belongs(h evidence.Hit) bool {
	if !h.Line.Continues {
		return false
	}
	for i := len(h.Before) - 1; i >= 0; i-- {
		if !h.Before[i].Continues {
			return isStored(h.Before[i])
		}
	}
	return false
}

var (
	// earlier matches words that say that a line is about what was before this run.
	earlier = regexp.MustCompile(`\b(?:(?:previous|last|earlier|prior|former) (?:run|start|boot|process|execution|deployment|incarnation|night|week)|before (?:this|the) (?:start|restart|run|boot)|(?:from|of|since) yesterday|yesterday'?s|(?:vorheriger|letzter) (?:lauf|start)|上次(?:运行|启动)|前回の(?:実行|起動))\b`)
	// record matches words about records of errors; with a date of another time they say that the error is not of now.
	record = regexp.MustCompile(`last[_ ]?(?:error|failure|exception|attempt)|previous[_ ](?:error|failure|attempt)|\b(?:stale|dead|archived|failed) (?:job|task|message|letter)|\b(?:run|failed|finished|ended|completed|occurred|errored)_?at\b|finished=|history|stored|recorded|\bjob\b|replay|dead[- ]?letter`)
	// kept matches words about records that a program keeps: a line of information about them has their errors.
	kept = regexp.MustCompile(`\b(?:stale|dead|archived|failed|stored|parked|poisoned) (?:jobs?|tasks?|messages?|letters?|records?|runs?|executions?)\b|dead[- ]?letter|\b(?:job|run|failure|error) history\b`)
	// quoting matches fields and words whose value is a text that a person wrote.
	quoting = regexp.MustCompile(`\b(?:title|subject|comment|ticket|question|document|article|example|sample|runbook|faq|fixture|transcript|search(?:ed)?)(?:"?\s*[=:]\s*|\s+(?:#?\d+:?\s*)?)["'“«]`)
)

// isQuoted reports whether the words about the failure are in a text that the line quotes.
func isQuoted(lower string) bool {
	m := quoting.FindStringIndex(lower)
	if m == nil {
		return false
	}
	if f, place := failureOf(lower); f != "" && place < m[1] {
		return false // it is before the text, too
	}
	end := strings.IndexAny(lower[m[1]:], "\"'”»")
	return end < 0 || !fails(lower[m[1]+end:])
}

// Fails reports whether a text has the words of a failed call.
func Fails(text string) bool { return fails(strings.ToLower(text)) }

func fails(lower string) bool {
	f, _ := failureOf(lower)
	return f != ""
}

// isDated reports whether a line has the date of a time that is before its own by more than the least difference.
func isDated(line evidence.Line, least time.Duration) bool {
	if line.Continues || !line.Time.Known() {
		return false
	}
	stamps := timestamp.All(line.Text)
	own, has := timestamp.Find(line.Text)
	for _, s := range stamps {
		var ago time.Duration
		limit := least
		switch {
		case s.NoYear || has && s.At == own.At:
			continue
		case s.Zoned && line.Likely.Clock == evidence.NodeClock:
			ago = line.Likely.At.Sub(s.Wall)
		case has && !own.NoYear && own.Zoned == s.Zoned:
			ago = own.Wall.Sub(s.Wall)
		default:
			ago, limit = line.Time.At.Sub(s.Wall), oldDay
		}
		if ago > limit {
			return true
		}
	}
	return false
}
