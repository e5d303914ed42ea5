package containerd

import (
	"testing"
	"time"
)

func TestEventsAreRead(t *testing.T) {
	for release, exited := range map[string]string{"1.6": `"2026-11-21T18:00:00.1Z"`, "2.2": `{"seconds":1795284000,"nanos":100000000}`} {
		e, ok := parse(`2026-11-21 18:00:00.123456789 +0000 UTC k8s.io /tasks/exit {"container_id":"c","id":"c","pid":7,"exit_status":137,"exited_at":` + exited + `}`)
		if want := time.Date(2026, 11, 21, 18, 0, 0, 100_000_000, time.UTC); !ok || e.Status != 137 || !e.At.Equal(want) {
			t.Errorf("exit as containerd %s prints it: %+v, %v, want status 137 at %v", release, e, ok, want)
		}
	}
	for _, line := range []string{"", "what is this", `2026-11-21 18:00:00 +0000 UTC k8s.io /tasks/exit {"container_id":"c","id":"exec"}`} {
		if e, ok := parse(line); ok {
			t.Errorf("%q: taken for %+v", line, e)
		}
	}
}
