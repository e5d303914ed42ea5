package shell

import (
	"strings"
	"testing"
	"time"
)

func TestSleeps(t *testing.T) {
	for text, want := range map[string]time.Duration{ // any order: each is alone
		"/bin/sleep 40":                                   40 * time.Second,
		"sh -c|sleep 5; nginx -s quit; sleep 2m":          125 * time.Second,
		"sh -c|curl -X POST localhost/drain && sleep 10":  10 * time.Second,
		"sh -c|test -f /up || sleep 10":                   0,
		"sh -c|sleep 10 & wait":                           0,
		"sh -c|while pgrep app; do sleep 1; done; exec x": 0,
		"sh -c|exec sleep 3":                              3 * time.Second,
		"drain":                                           0,
		"":                                                0,
	} {
		first, script, _ := strings.Cut(text, "|")
		argv := strings.Fields(first)
		if script != "" {
			argv = append(argv, script)
		}
		if got := Sleeps(argv); got != want {
			t.Errorf("%q sleeps %s, want %s", text, got, want)
		}
	}
}
