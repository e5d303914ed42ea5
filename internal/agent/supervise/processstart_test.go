package supervise

import (
	"os/exec"
	"strconv"
	"testing"
	"time"
)

func TestStartTime(t *testing.T) {
	before := time.Now()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	after := time.Now()
	got, err := StartTime(strconv.Itoa(cmd.Process.Pid))
	if slack := 20 * time.Millisecond; err != nil || got.Before(before.Add(-slack)) || got.After(after.Add(slack)) {
		t.Errorf("%v, %v; between %v and %v", got, err, before, after)
	}
	if self, err := StartTime("self"); err != nil || self.After(before) {
		t.Errorf("self: %v, %v", self, err)
	}
	if _, err := StartTime("none"); err == nil {
		t.Error("no such process, and no error")
	}
}

func FuzzParseStartTicks(f *testing.F) {
	f.Add("1 (a) b) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0")
	f.Add(")")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseStartTicks(s); n > 1<<53 || err != nil && n != 0 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

func TestAProcessNameMayContainAnything(t *testing.T) {
	n, err := parseStartTicks("1 (a) b) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0")
	if n != 4242 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
