package envoy

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"
)

// Levels of Envoy that slog does not name:
const (
	LevelTrace    = slog.LevelDebug - 4
	LevelCritical = slog.LevelError + 4
)

var levels = map[string]slog.Level{
	"trace": LevelTrace, "debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warning": slog.LevelWarn, "error": slog.LevelError, "critical": LevelCritical,
}

// A Line is one line of Envoy's log.
type Line struct {
	Time      time.Time // zero where the line has none
	Level     slog.Level
	Component string // Envoy's logger, for example "upstream"; empty if the line is not in our format
	Source    string // file:line in Envoy's source
	Message   string
}

// ParseLine reads a line of Envoy's standard error, in the format that [Options.Args] sets.
// Any other line (a usage message, an abort of a library) becomes a warning with the whole
// line as its message.
func ParseLine(raw []byte) Line {
	raw = bytes.TrimRight(raw, "\r\n")
	var form struct {
		Time, Level, Component, Source string
		Message                        *string
	}
	err := json.Unmarshal(raw, &form)
	level, known := levels[form.Level]
	if err != nil || form.Message == nil || !known {
		return Line{Level: slog.LevelWarn, Message: strings.ToValidUTF8(string(raw), "\uFFFD")}
	}
	l := Line{Level: level, Component: form.Component, Source: form.Source, Message: *form.Message}
	l.Time, _ = time.Parse("2006-01-02T15:04:05.999999Z07:00", form.Time)
	return l
}

// Log passes the line to h as a record of the agent's log, if h is enabled for its level.
func (l Line) Log(ctx context.Context, h slog.Handler) error {
	if !h.Enabled(ctx, l.Level) {
		return nil
	}
	r := slog.NewRecord(l.Time, l.Level, l.Message, 0)
	if l.Component != "" {
		r.AddAttrs(slog.String("component", l.Component))
	}
	if l.Source != "" {
		r.AddAttrs(slog.String("source", l.Source))
	}
	return h.Handle(ctx, r)
}

// A Cause is the reason why Envoy ended.
type Cause struct {
	Reason string // one line; empty if the log does not say

	// Final means that the same bootstrap and arguments would fail again.
	Final bool
}

const backtrace = "backtrace"

// Crash reports whether the line is the first one of a crash report.
func (l Line) Crash() bool {
	return l.Component == backtrace && strings.HasPrefix(l.Message, "Caught ")
}

// Explain searches the last lines of Envoy's standard error for the reason of its end.
func Explain(lines []string) Cause {
	for _, raw := range lines {
		l := ParseLine([]byte(raw))
		if reason, ok := strings.CutPrefix(l.Message, "PARSE ERROR: "); ok {
			return Cause{Reason: "arguments rejected: " + tidy(reason), Final: true}
		}
		if l.Level < LevelCritical || l.Component == backtrace && !l.Crash() {
			continue
		}
		// Envoy writes "error `why` initializing config 'where'" once, with status 1.
		reason, ok := strings.CutPrefix(l.Message, "error `")
		if !ok {
			return Cause{Reason: tidy(l.Message)}
		}
		if i := strings.LastIndex(reason, "` initializing config"); i >= 0 {
			reason = reason[:i]
		}
		reason = tidy(reason)
		if strings.HasPrefix(reason, "cannot bind") {
			return Cause{Reason: reason} // the process that has the port may release it
		}
		return Cause{Reason: "configuration rejected: " + reason, Final: true}
	}
	return Cause{}
}

// tidy removes random spaces. Protobuf adds them to its messages so that programs do not compare
// the texts.
func tidy(s string) string { return strings.Join(strings.Fields(s), " ") }
