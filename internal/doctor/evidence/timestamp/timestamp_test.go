package timestamp

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// text formats a stamp: its form, the known parts of its time, and its resolution.
func text(s Stamp) string {
	layout := "2006-01-02T15:04:05.999999999"
	switch {
	case s.Form == Uptime:
		return fmt.Sprintf("%s %s %s", s.Form, s.Since, s.Resolution)
	case s.NoDate:
		layout = "15:04:05.999999999"
	case s.NoYear:
		layout = "01-02T15:04:05.999999999"
	}
	out := s.Wall.Format(layout)
	if s.Zoned {
		out += "Z"
	}
	return fmt.Sprintf("%s %s %s", s.Form, out, s.Resolution)
}

//go:embed testdata/stamps.txt
var stamps string

// Each row of the file contains the name of a program, a line of its log, and the expected stamp if the line has one.
// Rows marked "recorded" contain output of the runtimes themselves, all other rows contain examples from the
// runtimes' documentation.
func TestFind(t *testing.T) {
	for row := range strings.Lines(stamps) {
		cells := strings.Split(strings.TrimSuffix(row, "\n"), "\t")
		t.Run(cells[0], func(t *testing.T) {
			line, err := strconv.Unquote(cells[1])
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if s, ok := Find([]byte(line)); ok {
				got = text(s)
			}
			if got != cells[2] {
				t.Errorf("%q\n got %q\nwant %q", line, got, cells[2])
			}
		})
	}
}

func lines(s string) (out [][]byte) {
	for l := range strings.SplitSeq(s, "\n") {
		out = append(out, []byte(l))
	}
	return out
}

func TestLayout(t *testing.T) {
	const k = "2026-11-24T03:18:19.480123456Z "
	for name, tt := range map[string]struct{ log, want string }{
		"a stack trace belongs to the line before": {
			"2026-11-24 03:18:19,480 ERROR x\njava.net.ConnectException: refused\n\tat java.base/Net\n    ... 7 more\n2026-11-24 03:18:20,001 INFO y",
			"own 03:18:19.480 | +java.net. | +\tat java. | +    ... 7 | own 03:18:20.001",
		},
		"each record of java.util.logging has two lines": {
			"Nov 24, 2026 12:08:25 PM J main\nINFO: started",
			"own 12:08:25.000 | +INFO: sta",
		},
		"a log without times has lines of their own": {
			"listening\nError: refused\n    at connect (node:net:1)\nexit",
			"listening | Error: re | +    at co | exit",
		},
		"kubectl's times are taken off": {
			k + "listening\n" + k + "Error: refused\n" + k + "    at connect",
			"written 03:18:19.480 listening | written 03:18:19.480 Error: re | written 03:18:19.480 +    at co",
		},
		"and those of CRI with the stream": {
			"2026-11-24T11:18:19.48+08:00 stdout F 2026/11/24 11:18:19 x\n2026-11-24T11:18:19.5+08:00 stderr P half",
			"written 03:18:19.480 own 11:18:19.000 | written 03:18:19.500 +half",
		},
		"a program that prints such times itself keeps them": {
			"2026-11-24T03:18:19.480Z x\nno time",
			"own 03:18:19.480 | +no time",
		},
		"a line in another layout is read too": {
			"2026/11/24 03:18:19 [error] x\n2026/11/24 03:18:20 [error] y\n10.0.0.7 - - [24/Nov/2026:03:18:21 +0000] \"GET /\"",
			"own 03:18:19.000 | own 03:18:20.000 | own 03:18:21.000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := lines(tt.log)
			layout := Learn(all)
			var got []string
			for _, line := range all {
				r := layout.Read(line)
				var parts []string
				if r.HasWritten {
					parts = append(parts, "written "+r.Written.Wall.Format("15:04:05.000"))
				}
				if r.HasOwn {
					parts = append(parts, "own "+r.Own.Wall.Format("15:04:05.000"))
				} else {
					begin := string(r.Text[:min(9, len(r.Text))])
					if r.Continues {
						begin = "+" + begin
					}
					parts = append(parts, begin)
				}
				got = append(got, strings.Join(parts, " "))
			}
			if got := strings.Join(got, " | "); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestFits(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	started := at("2026-11-24T13:16:22Z")
	for name, tt := range map[string]struct {
		first, last string
		to          time.Time
		want        string
	}{
		"one, for a run of a second":                  {"2026-11-24 21:16:22,900", "2026-11-24 21:16:23,100", at("2026-11-24T13:16:24Z"), "[8h0m0s]"},
		"UTC":                                         {"2026-11-24 13:16:22", "2026-11-24 13:16:23", at("2026-11-24T13:16:24Z"), "[0s]"},
		"India's, of half an hour":                    {"2026-11-24 18:46:22", "2026-11-24 18:46:23", at("2026-11-24T13:16:24Z"), "[5h30m0s]"},
		"Nepal's, of a quarter, without a date":       {"19:01:22.100", "19:01:23.100", at("2026-11-24T13:16:24Z"), "[5h45m0s]"},
		"behind UTC, and so on the day before":        {"Nov 24 03:16:22", "Nov 24 03:16:23", at("2026-11-24T13:16:24Z"), "[-10h0m0s]"},
		"several, for a run of half an hour":          {"2026-11-24 13:16:30", "2026-11-24 13:20:00", at("2026-11-24T13:46:00Z"), "[-15m0s 0s]"},
		"none: the log of another run":                {"2026-11-24 13:21:22", "2026-11-24 13:21:23", at("2026-11-24T13:16:24Z"), "[]"},
		"none: the log is longer than the run":        {"2026-11-24 13:16:22", "2026-11-24 14:00:00", at("2026-11-24T13:16:24Z"), "[]"},
		"one: the log is as long as the run, an hour": {"2026-11-24 14:16:22", "2026-11-24 15:10:00", at("2026-11-24T14:17:00Z"), "[1h0m0s]"},
	} {
		t.Run(name, func(t *testing.T) {
			first, ok1 := Find([]byte(tt.first))
			last, ok2 := Find([]byte(tt.last))
			if !ok1 || !ok2 {
				t.Fatal("no time")
			}
			if got := fmt.Sprint(Fits(first, last, started, tt.to, 5*time.Second)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// Times of a line that are not its own are found too, in any field.
func TestAll(t *testing.T) {
	for line, want := range map[string]string{
		`2026-11-20T09:30:05.000Z INFO last failure: 2026-11-19T22:10:00Z dial tcp 10.96.3.3:5432: refused`: "09:30:05 22:10:00",
		`I, [2024-12-03T09:41:56.188702 #1]  INFO -- : stale job run_at=2024-12-02 22:10:41 UTC`:            "09:41:56 22:10:41",
		`{"time":"2024-12-05T00:00:05Z","job":{"id":1733177441,"failed_at":1733177442,"n":"1733177443"}}`:   "00:00:05 22:10:42",
		`{"level":30,"time":1733356805000,"finishedAt":"2024-12-02T00:00:41Z"}`:                             "00:00:05 00:00:41",
		`10.96.3.3:5432 is not there, since 12:30:05`:                                                       "",
	} {
		var got []string
		for _, s := range All([]byte(line)) {
			got = append(got, s.Wall.Format("15:04:05"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
	if n := len(All([]byte(strings.Repeat("2024-12-05T00:00:05Z ", 100)))); n != mostStamps {
		t.Errorf("%d stamps", n)
	}
}

// A missing year or date is chosen so that the time is as near as possible to the run, also around New Year.
func TestMissingParts(t *testing.T) {
	near := time.Date(2026, 12, 31, 23, 59, 58, 0, time.UTC)
	for line, want := range map[string]string{
		"Jan  1 00:00:02 host x":      "2027-01-01T00:00:02Z",
		"E1231 23:59:59.000001 1 x]":  "2026-12-31T23:59:59.000001Z",
		"00:00:02.5 [main] x":         "2027-01-01T00:00:02.5Z",
		"23:59:59.5 [main] x":         "2026-12-31T23:59:59.5Z",
		"2020-01-01T00:00:00+01:00 x": "2019-12-31T23:00:00Z",
	} {
		s, ok := Find([]byte(line))
		if got := s.Instant(0, near).Format(time.RFC3339Nano); !ok || got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

func FuzzFind(f *testing.F) {
	for _, s := range []string{"2026-11-24T03:18:19.480Z x", "I1124 03:18:19.480123 1 x]", `{"ts":1795490299.48}`, "Nov 24, 2026 3:18:19 AM x", "[24/Nov/2026:03:18:19 +0000]", "\x1b[2m03:18:19,480",
		"2026-11-24T03:18:19.480123456Z stdout F x\n2026-11-24T03:18:19.480123456Z stdout P x", "1:M 24 Nov 2026 03:18:19.480 *", `{"instant":{"epochSecond":1795490299,"nanoOfSecond":4}}`, "\xff\x00Nov",
		"[     1.700000s]  INFO x by y on 2025-09-01T22:31:18Z", "   0.001714s  INFO x", "[0.005s][info][gc] x", `{"a":{"failed_at":1733177442}} at 2024-12-02 22:10:41 UTC`} {
		f.Add([]byte(s))
	}
	near := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, log []byte) {
		all := lines(string(log))
		layout := Learn(all)
		for _, line := range all {
			s, ok := Find(line)
			if ok && (s.At < 0 || s.At >= s.End || s.End > len(line) || s.Resolution < 1 || s.Resolution > time.Second) {
				t.Fatalf("%q: %+v", line, s)
			}
			if ok {
				if again, ok := Find(append([]byte(nil), line...)); !ok || again != s {
					t.Fatalf("%q: %+v, then %+v", line, s, again)
				}
				for _, s := range All(line) {
					if s.At < 0 || s.At >= s.End || s.End > len(line) {
						t.Fatalf("%q: %+v", line, s)
					}
				}
				s.Instant(time.Hour, near)
				Fits(s, s, near, near.Add(time.Minute), time.Second)
			}
			r := layout.Read(line)
			if len(r.Text) > len(line) || r.HasOwn && r.Continues {
				t.Fatalf("%q: %+v", line, r)
			}
		}
	})
}

// A time within a text, a header or a field of something else is no time of the line.
func TestTimesOfOthers(t *testing.T) {
	right, all := 0, 0
	check := func(own bool, lines ...string) {
		for _, line := range lines {
			all++
			if _, ok := Find([]byte(line)); ok != own {
				t.Errorf("own %t, want %t: %s", ok, own, line)
				continue
			}
			right++
		}
	}
	check(false,
		`deploy-notes: last attempt (2026-11-23 13:19:40Z) ended with: refused`, `date: Mon, 23 Nov 2026 01:30:10 GMT`, `< Date: Mon, 23 Nov 2026 01:30:10 GMT`, `Last-Modified: Tue, 03 Mar 2026 08:00:00 GMT`,
		`Expires: Wed, 04 Mar 2026 08:00:00 GMT`, `*  expire date: Nov 30 12:00:00 2027 GMT`, `Not Before: Mar  2 10:00:00 2026 GMT`, `restoring the snapshot of 2026-02-01T00:00:00Z`, `cache entry made at 2026-02-28 11:00:00 is stale`,
		`job 17 enqueued_at=2026-03-01T09:00:00Z failed: connection refused`, `replaying event 4711 from 2026-02-27T01:02:03Z`, `token valid until 2026-03-02T11:00:00Z`, `letzter Lauf vom 2026-02-27 09:00:00 endete mit: x`,
		`上次运行 2026-02-27 09:00:00 失败`, `x509: certificate has expired or is not yet valid: current time 2026-03-02T10:00:00Z is after 2026-02-28T00:00:00Z`, `dernier essai le 2026-02-27 09:00:00: refus`, `if-modified-since: Mon, 23 Nov 2026 01:30:10 GMT`,
		`app v1.2 (build 2026-02-27 09:00:00)`, `Updated: 2026-02-27 09:00:00`, `expires=2026-02-27T09:00:00Z`,
	)
	check(true,
		`2026-11-23 13:19:40 last attempt`, `INFO 2026-03-02 10:00:00 x`, `[main] INFO  2026-03-02T10:00:00Z x`, `10.0.0.1 - - [02/Mar/2026:10:00:00 +0000] "GET / HTTP/1.1" 200`, `10.0.0.1 - frank [02/Mar/2026:10:00:00 +0000] "GET /"`,
		`level=info ts=2026-03-02T10:00:00Z msg=x`, `level=info msg="last attempt of today" time=2026-03-02T10:00:00Z`, `redis: 2026/11/20 09:30:05 pool.go:366: x`, `[mysql] 2026/11/20 09:30:05 packets.go:37: x`, `1:M 24 Nov 2026 03:18:19.480 * Ready`,
		`E, [2026-11-24T03:18:19.480123 #1] ERROR -- : x`, `[worker 3] 2026-03-02 10:00:00 x`, `app-1  | 2026-03-02 10:00:00 x`, `<34>1 2026-03-02T10:00:00Z host app - - x`, `Mon, 02 Mar 2026 10:00:00 GMT express:router x`, `caller=main.go:3 ts=2026-03-02T10:00:00Z`,
		`WARN [2026-03-02 10:00:00,000] x`, `[error] [client 10.0.0.1] 2026-03-02 10:00:00 x`, `pool-1-thread-2 INFO 2026-03-02 10:00:00 x`, `Server started at 2026-03-02 10:00:00`, `[Mon, 02 Mar 2026 10:00:00 GMT] GET / 200`, `main: 2026-03-02 10:00:00 x`,
	)
	t.Logf("%d of %d are right", right, all)
}
