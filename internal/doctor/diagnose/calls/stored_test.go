package calls

import (
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/doctor/evidence"
)

// Lines that print errors of another time, or texts, are no calls; lines about calls of now are, whatever dates they have.
func TestStored(t *testing.T) {
	const refused = "dial tcp 10.96.3.3:5432: connect: connection refused"
	for line, want := range map[string]bool{
		`2026-11-20T09:30:05.000Z INFO last failure before this start: 2026-11-19T22:10:00Z ` + refused:                                                        true,
		`2026-11-20T09:30:05.000Z INFO the previous run ended: ` + refused:                                                                                     true,
		`2026-11-20T09:30:05.000Z WARN from yesterday: ` + refused:                                                                                             true,
		`I, [2026-11-20T09:30:05.188702 #1]  INFO -- : stale job 55120 attempts=3 run_at=2026-11-19 22:10:41 UTC last_error="` + refused + `"`:                 true,
		`time=2026-11-20T09:30:05Z level=INFO msg=loaded id=20241202 state=failed finished=2026-11-20T08:00:41Z error="` + refused + `"`:                       true,
		`{"time":"2026-11-20T09:30:05Z","level":"warn","msg":"dead job","failed_at":1795154400,"error":"` + refused + `"}`:                                     true,
		`{"time":"2026-11-20T09:30:05Z","level":"error","msg":"replay","job":{"failedAt":"2026-11-20T01:00:00Z","lastError":"` + refused + `"}}`:               true,
		`2026-11-20T09:30:05.000Z INFO imported ticket #512: "` + refused + `"`:                                                                                true,
		`2026-11-20T09:30:05.000Z record of 2026-10-02T00:00:00Z: ` + refused:                                                                                  true,
		`2026-11-20T09:30:05.000Z INFO 3 failed jobs, the first: ` + refused:                                                                                   true,
		`2026-11-20T09:30:05.000Z ERROR a failed job: ` + refused:                                                                                              false,
		`2026-11-20T09:30:05.000Z ERROR ` + refused:                                                                                                            false,
		`2026-11-20T09:30:05.000Z ERROR order of 2026-10-02T00:00:00Z not saved: ` + refused:                                                                   false,
		`2026-11-20T09:30:05.000Z order of 2026-11-20T08:00:00Z not saved: ` + refused:                                                                         false,
		`2026-11-20T09:30:05.000Z INFO retry at 2026-11-20T09:40:05.000Z: ` + refused:                                                                          false,
		`2026-11-20T09:30:05.000Z INFO retrying; last error: ` + refused:                                                                                       false,
		`2026-11-20T09:30:05.000Z INFO since 2026-11-20T09:30:01Z: ` + refused:                                                                                 false,
		`2026-11-20T09:30:05.000Z INFO ` + refused + ` for article "prices"`:                                                                                   false,
		`2026-11-20T09:30:05.000Z INFO sample "x" not sent: ` + refused:                                                                                        false,
		`{"time":"2026-11-20T09:30:05Z","level":"error","ticket":"` + refused + `"}`:                                                                           false,
		`2026-11-20T09:30:05.000Z INFO upstream answered 503, body="upstream connect error or disconnect/reset before headers. reset reason: ` + refused + `"`: false,
	} {
		l := evidence.Line{Text: []byte(line)}
		if s := strings.IndexByte(line, '2'); s >= 0 {
			l.Time = evidence.Time{At: time.Date(2026, 11, 20, 9, 30, 5, 0, time.UTC), Error: time.Second, Clock: evidence.NodeClock}
			l.Likely = l.Time
		}
		if got := isStored(l); got != want {
			t.Errorf("%t, want %t: %s", got, want, line)
		}
	}
	head := evidence.Line{Text: []byte("2026-11-20T09:30:05.000Z INFO the previous run ended:")}
	h := evidence.Hit{Line: evidence.Line{Text: []byte("Caused by: " + refused), Continues: true}, Before: []evidence.Line{head, {Text: []byte("\tat x"), Continues: true}}}
	if !belongs(h) {
		t.Error("a cause below a stored error is a call")
	}
}
