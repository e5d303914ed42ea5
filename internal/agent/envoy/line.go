package envoy

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"
)

// Levels of Envoy that slog has no name for.
const (
	LevelTrace    = slog.LevelDebug - 4
	LevelCritical = slog.LevelError + 4
)

// A Line is one line of Envoy's log.
type Line struct {
	Time      time.Time // zero where the line has none
	Level     slog.Level
	Component string // Envoy's logger, for example "upstream"; empty for a line without form
	Source    string // file:line in Envoy's source
	Message   string
}

// ParseLine reads a line of Envoy's standard error, in the form that [Options.Args] requests
// for or in Envoy's own. What has neither form (a usage message, an abort of a library)
// becomes a warning with the whole line as its message: nothing is lost.
func ParseLine(raw []byte) Line {
	raw = bytes.TrimRight(raw, "\r\n")
	if l, ok := parseJSON(raw); ok {
		return l
	}
	if l, ok := parseText(string(raw)); ok {
		return l
	}
	return Line{Level: slog.LevelWarn, Message: strings.ToValidUTF8(string(raw), "\uFFFD")}
}

// Record is the line as an event of the agent's log.
func (l Line) Record() slog.Record {
	r := slog.NewRecord(l.Time, l.Level, l.Message, 0)
	if l.Component != "" {
		r.AddAttrs(slog.String("component", l.Component))
	}
	if l.Source != "" {
		r.AddAttrs(slog.String("source", l.Source))
	}
	return r
}

// Log hands the line to h if h wants its level.
func (l Line) Log(ctx context.Context, h slog.Handler) error {
	if !h.Enabled(ctx, l.Level) {
		return nil
	}
	return h.Handle(ctx, l.Record())
}

func parseJSON(raw []byte) (Line, bool) {
	if len(raw) == 0 || raw[0] != '{' {
		return Line{}, false
	}
	var form struct {
		Time, Level, Component, Source string
		Message                        *string
	}
	if json.Unmarshal(raw, &form) != nil || form.Message == nil {
		return Line{}, false
	}
	level, ok := parseLevel(form.Level)
	if !ok {
		return Line{}, false
	}
	l := Line{Level: level, Component: form.Component, Source: form.Source, Message: *form.Message}
	l.Time, _ = time.Parse("2006-01-02T15:04:05.999999Z07:00", form.Time)
	return l, true
}

// parseText reads "[2026-11-21 15:32:27.096][19710][info][main] [source/server/server.cc:463] message":
// Envoy's default, in the time of the machine.
func parseText(s string) (Line, bool) {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	var fields [5]string // time, thread, level, component, source
	for i := range fields {
		if i == len(fields)-1 {
			s = strings.TrimPrefix(s, " ")
		}
		rest, ok := strings.CutPrefix(s, "[")
		if !ok {
			return Line{}, false
		}
		if fields[i], s, ok = strings.Cut(rest, "]"); !ok {
			return Line{}, false
		}
	}
	level, ok := parseLevel(fields[2])
	if !ok {
		return Line{}, false
	}
	at, err := time.ParseInLocation("2006-01-02 15:04:05.999", fields[0], time.Local)
	if err != nil {
		return Line{}, false
	}
	return Line{Time: at, Level: level, Component: fields[3], Source: fields[4], Message: strings.TrimPrefix(s, " ")}, true
}

func parseLevel(s string) (slog.Level, bool) {
	switch s {
	case "trace":
		return LevelTrace, true
	case "debug":
		return slog.LevelDebug, true
	case "info":
		return slog.LevelInfo, true
	case "warning", "warn":
		return slog.LevelWarn, true
	case "error":
		return slog.LevelError, true
	case "critical":
		return LevelCritical, true
	}
	return 0, false
}
