package containerd

import (
	"testing"
	"time"
)

func TestEventsAreRead(t *testing.T) {
	e, ok := parse(`2026-11-21 18:00:00.123456789 +0000 UTC k8s.io /tasks/exit {"container_id":"c","id":"c","pid":7,"exit_status":137,"exited_at":"2026-11-21T18:00:00.1Z"}`)
	if want := time.Date(2026, 11, 21, 18, 0, 0, 100_000_000, time.UTC); !ok || e.Status != 137 || !e.At.Equal(want) {
		t.Errorf("exit: %+v, %v, want status 137 at %v", e, ok, want)
	}
	for _, line := range []string{"", "what is this", `2026-11-21 18:00:00 +0000 UTC k8s.io /tasks/exit {"container_id":"c","id":"exec"}`} {
		if e, ok := parse(line); ok {
			t.Errorf("%q: taken for %+v", line, e)
		}
	}
}
