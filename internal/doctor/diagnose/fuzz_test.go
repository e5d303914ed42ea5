package diagnose

import (
	"strconv"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
)

// Messages of events and lines of logs yield bounded values: a port, a path, a sentence in one line.
func FuzzMessages(f *testing.F) {
	for _, text := range []string{
		`Liveness probe failed: Get "http://10.2.4.9:80/healthz": dial tcp 10.2.4.9:80: connect: connection refused`, "panic: listen tcp :15021: bind: address already in use",
		`Exec lifecycle hook ([/wait]) for Container "x" in Pod "y" failed - error: command '/wait' exited with 1: no netstat, message: ""`,
	} {
		f.Add(text)
	}
	s := &subject{Case: &chain.Case{Pod: &facts.Pod{}}}
	f.Fuzz(func(t *testing.T, text string) {
		port, path := states.Probed(text, nil, nil)
		if len(port) > 5 || strings.ContainsAny(path, " \"\n") {
			t.Errorf("%q, %q", port, path)
		}
		if n := facts.TakenPort(evidence.Told{Quotes: []evidence.Quote{{Text: text}}}); n < 0 || n > 65535 {
			t.Error(n)
		}
		if says := s.HookSays(text); len([]rune(says)) > 160 || strings.ContainsAny(says, "\n\x1b") {
			t.Errorf("%s", strconv.Quote(says))
		}
	})
}
