package why

import (
	"os"
	"strings"
	"testing"
)

// find returns the reason in a log, of what a scan keeps of it.
func find(log string) (Reason, bool) {
	all := strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	var lines []Line
	for i := range all {
		if Tells([]byte(all[i])) {
			for j := i; j < min(i+7, len(all)); j++ {
				lines = append(lines, Line{Number: j + 1, Text: []byte(all[j])})
			}
		}
	}
	for i := max(len(all)-64, 0); i < len(all); i++ {
		lines = append(lines, Line{Number: i + 1, Text: []byte(all[i])})
	}
	return Find(lines, func(b []byte) string { return string(b) })
}

// Each part of the file is a log: a line "=== name", a line with the message that is wanted, empty if there is none,
// and the lines.
func TestFind(t *testing.T) {
	text, err := os.ReadFile("testdata/ends.txt")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "=== ")[1:]
	for _, part := range parts {
		name, rest, _ := strings.Cut(part, "\n")
		want, log, _ := strings.Cut(rest, "\n")
		t.Run(name, func(t *testing.T) {
			r, _ := find(log)
			if r.Text != want {
				t.Errorf("\n got %q\nwant %q", r.Text, want)
			}
		})
	}
	if len(parts) < 40 {
		t.Errorf("only %d logs", len(parts))
	}
}

func TestADumpOfThreadsHidesNothing(t *testing.T) {
	log := "listening\npanic: nil map\n\ngoroutine 1 [running]:\n" + strings.Repeat("main.x(0xc000)\n\t/src/x.go:3 +0x1d\n", 300)
	if r, _ := find(log); r.Text != "panic: nil map" || r.Line.Number != 2 {
		t.Errorf("%+v", r)
	}
	if r, found := find("ERROR no database\n" + strings.Repeat("GET / 200\n", 300)); found {
		t.Errorf("an error long before the end: %+v", r)
	}
	if r, _ := find("FATAL " + strings.Repeat("x", 5000)); len([]rune(r.Text)) > most || len(r.Text) < most/2 {
		t.Errorf("%d characters", len(r.Text))
	}
	if r, _ := find("ERROR unable to start: " + strings.Repeat("failed to get instance: ", 50) + "Error 403: not authorized"); !strings.HasPrefix(r.Text, "unable to start: failed") || !strings.HasSuffix(r.Text, ": Error 403: not authorized") {
		t.Errorf("%q", r.Text)
	}
}

func TestLastWord(t *testing.T) {
	for want, lines := range map[string][]string{
		"not enough quota, not starting": {`{"level":"info","msg":"starting"}`, `{"level":"info","msg":"not enough quota, not starting"}`, `{"level":"info","msg":"exiting with status 4"}`, ""},
		"checking":                       {"2026-01-01T10:00:00Z INFO checking", "2026-01-01T10:00:00Z DEBUG read 3 lines"},
		"":                               {"exit", "bye", "    at x.js:3", `10.0.0.1 "GET /forbidden HTTP/1.1" 403`},
	} {
		if got, wrong := LastWord(lines); got != want || wrong != strings.Contains(want, "not enough") {
			t.Errorf("%q %v, want %q", got, wrong, want)
		}
	}
}

func TestLevelOf(t *testing.T) {
	for line, want := range map[string]Level{
		`{"time":"x","level":"error","msg":"info"}`:                  Error,
		"2026-03-02T13:00:06.642Z warn no catalogue, an error of it": Warning,
		`{"level":60,"msg":"x"}`:                                     Fatal,
		`{"severity":"CRITICAL","message":"x"}`:                      Fatal,
		`time=2024-12-05T00:00:05Z level=INFO msg="the last ERROR"`:  Info,
		`E1124 03:18:19.480123 1 x.go:3] y`:                          Error,
		`I, [2024-12-03T09:41:56 #1]  INFO -- : FATAL`:               Info,
		`fail: Microsoft.Extensions.Hosting.Internal.Host[9]`:        Error,
		`2026/11/24 03:18:19 [emerg] 1#1: x`:                         Fatal,
		`[2024-11-24 10:00:00 +0000] [7] [ERROR] Worker failed`:      Error,
		`2022-12-06 10:19:14.911 ERROR 1 --- [main] i.a.P : no INFO`: Error,
		"2024-01-17T14:26:18Z\terror\tRequest to probe app failed":   Error,
		"\x1b[31mERROR\x1b[0m x":                                     Error,
		`2024-11-24 10:00:00 UTC [1] FATAL:  password failed`:        Fatal,
		`1:M 24 Nov 2026 03:18:19.480 * Ready`:                       NoLevel,
		`the ERROR is not here`:                                      Error,
		`listening on 8080`:                                          NoLevel,
		`error: it is`:                                               Error,
		``:                                                           NoLevel,
	} {
		if got := LevelOf(line); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}

// A message is one line, and no longer than a sentence may be.
func FuzzFind(f *testing.F) {
	text, err := os.ReadFile("testdata/ends.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "=== ") {
		f.Add(part)
	}
	f.Fuzz(func(t *testing.T, log string) {
		if len(log) > 1<<14 { // a scan keeps no more of a log
			return
		}
		r, found := find(log)
		if n := len([]rune(r.Text)); n > most || strings.ContainsAny(r.Text, "\n\r\t") || !found && n > 0 {
			t.Errorf("%q", r.Text)
		}
		if again, _ := find(log); again.Text != r.Text {
			t.Errorf("%q, then %q", r.Text, again.Text)
		}
	})
}
