package envoy

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParseLine(t *testing.T) {
	at := time.Date(2026, 11, 21, 15, 38, 22, 305111000, time.UTC)
	tests := map[string]struct {
		raw  string
		want Line
	}{
		"the format of Args": {
			`{"time":"2026-11-21T15:38:22.305111+00:00","level":"warning","component":"main","source":"server.cc:449","message":"a \"b\"\nc"}` + "\n",
			Line{at, slog.LevelWarn, "main", "server.cc:449", "a \"b\"\nc"},
		},
		"plain text":        {"PARSE ERROR: Argument: --bogus", Line{Level: slog.LevelWarn, Message: "PARSE ERROR: Argument: --bogus"}},
		"other JSON":        {`{"a":1}`, Line{Level: slog.LevelWarn, Message: `{"a":1}`}},
		"bytes":             {"\xff", Line{Level: slog.LevelWarn, Message: "\uFFFD"}},
		"nothing":           {"", Line{Level: slog.LevelWarn}},
		"an invalid time":   {`{"time":"x","level":"info","message":"m"}`, Line{Level: slog.LevelInfo, Message: "m"}},
		"an unknown level":  {`{"level":"x","message":"m"}`, Line{Level: slog.LevelWarn, Message: `{"level":"x","message":"m"}`}},
		"cut in the middle": {`{"time":"2026-11-21T15:38:22`, Line{Level: slog.LevelWarn, Message: `{"time":"2026-11-21T15:38:22`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ParseLine([]byte(tt.raw))); diff != "" {
				t.Errorf("ParseLine (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALineBecomesARecord(t *testing.T) {
	var out bytes.Buffer
	h := slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})
	for _, l := range []Line{
		{time.Unix(0, 0).UTC(), slog.LevelError, "http", "a.cc:1", "bad"},
		{time.Unix(0, 0).UTC(), LevelTrace, "http", "a.cc:1", "below the level"},
	} {
		if err := l.Log(context.Background(), h); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"time":"1970-01-01T00:00:00Z","level":"ERROR","msg":"bad","component":"http","source":"a.cc:1"}` + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("Log (-want +got):\n%s", diff)
	}
}

func TestExplain(t *testing.T) {
	critical := func(message string) string {
		return `{"level":"critical","component":"main","message":"` + message + `"}`
	}
	tests := map[string]struct {
		lines []string
		want  Cause
	}{
		"a port in use may become free": {
			[]string{critical("error `cannot bind '127.0.0.1:25090': Address already in use` initializing config 'x'"), "cannot bind"},
			Cause{Reason: "cannot bind '127.0.0.1:25090': Address already in use"},
		},
		"an unknown field": {
			[]string{"noise", critical("error `no   such  field: 'nam'` initializing config 'goo.gle/debugproto'")},
			Cause{Reason: "configuration rejected: no such field: 'nam'", Final: true},
		},
		"an unknown argument": {[]string{"PARSE ERROR: Argument: --bogus", "  Couldn't"}, Cause{Reason: "arguments rejected: Argument: --bogus", Final: true}},
		"a crash":             {[]string{critical("Caught Segmentation fault, suspect faulting address 0x0")}, Cause{Reason: "Caught Segmentation fault, suspect faulting address 0x0"}},
		"the end of a backtrace": {
			[]string{`{"level":"critical","component":"backtrace","message":"#63: [0x1]"}`}, Cause{},
		},
		"no reason": {[]string{"x"}, Cause{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Explain(tt.lines)); diff != "" {
				t.Errorf("Explain (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"time":"2026-11-21T15:38:22.305111+00:00","level":"info","component":"c","source":"s","message":"m"}`))
	f.Add([]byte("[2026-11-21 15:38:22.305][1][info][main] [a.cc:1] m"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l := ParseLine(raw)
		if !utf8.ValidString(l.Message) || !utf8.ValidString(l.Component) {
			t.Errorf("not UTF-8: %+v", l)
		}
		if text := bytes.TrimRight(raw, "\r\n"); l.Component == "" && l.Source == "" && l.Time.IsZero() && !bytes.HasPrefix(text, []byte("{")) && utf8.Valid(raw) && l.Message != string(text) {
			t.Errorf("%q was read as %q", raw, l.Message)
		}
		Explain([]string{string(raw)})
	})
}
