package supervise

import (
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/process"
)

func TestStartTime(t *testing.T) {
	before := time.Now()
	p := process.Start(t, exec.Command("sleep", "infinity"), process.Options{})
	after := time.Now()
	got, err := StartTime(strconv.Itoa(p.PID()))
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
		if thread, err := parseThread(s); err != nil && thread != (Thread{}) {
			t.Errorf("%+v, %v", thread, err)
		}
		if thread, err := parseThread(s); err != nil && thread != (Thread{}) {
			t.Errorf("%v, %v", thread, err)
		}
	})
}

func TestAProcessNameMayContainAnything(t *testing.T) {
	n, err := parseStartTicks("1 (a) b) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0")
	if n != 4242 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	thread, err := parseThread("1 (a) b) S 0")
	if want := (Thread{Name: "a) b", State: 'S'}); thread != want || err != nil {
		t.Errorf("%+v, %v", thread, err)
	}
	for _, wrong := range []string{"", "1 a S", "1 (a)", "1 (a) SR"} {
		if thread, err := parseThread(wrong); err == nil {
			t.Errorf("%q: %+v; want an error", wrong, thread)
		}
	}
}

func TestThreads(t *testing.T) {
	p := process.Start(t, exec.Command("sh", "-c", "while :; do :; done"), process.Options{})
	process.Eventually(t, "the shell is loaded, and runs", func() bool {
		running, err := Threads(p.PID())
		return err == nil && len(running) == 1 && running[0].Awake()
	}, p)
	p.Signal(syscall.SIGSTOP)
	ran, awake := Progress(p.PID())
	if again, _ := Progress(p.PID()); ran <= 0 || awake || again != ran {
		t.Errorf("stopped after %s, %t, and then after %s", ran, awake, again)
	}
	stopped, err := Threads(p.PID())
	if err != nil || len(stopped) != 1 || stopped[0].State != 'T' || stopped[0].Awake() || stopped[0].Name != "sh" {
		t.Errorf("%+v, %v; want one that is stopped", stopped, err)
	}
	if _, err := Threads(1 << 30); err == nil {
		t.Error("no such process, and no error")
	}
}
