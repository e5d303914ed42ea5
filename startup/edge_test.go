package startup

import (
	"testing"
	"time"
)

// The decisions that the gate distinguishes and Check does not.
func TestDecide(t *testing.T) {
	for text, want := range map[string]Decision{
		"app after cache is healthy":                         Blocked,
		"app after cache is healthy, within 21s":             Blocked,
		"app after cache is healthy, within 20s":             GivenUp,
		"app after cache is healthy, within 20s or continue": Expired,
		"app after cache is started, within 20s":             Satisfied,
	} {
		if got := plan(t, text).Edges[0].Decide(Status{Ran: true, Running: true}, 20*time.Second); got != want || got.Open() != (want == Satisfied || want == Expired) {
			t.Errorf("%s: the decision is %d, want %d", text, got, want)
		}
	}
}
