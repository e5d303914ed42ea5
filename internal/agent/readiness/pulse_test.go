package readiness

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"outrider.dev/internal/agent/envoy"
)

// process runs a shell's program until the test ends.
func process(t *testing.T, program string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
	return cmd
}

const (
	works = "while :; do sleep 0.02; done"
	spins = "while :; do :; done"
)

// until looks again and again, as rarely as given. It returns since when p is still.
func until(t *testing.T, p *pulse, every time.Duration, want bool) (still time.Time) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		time.Sleep(every)
		well, still := p.look()
		if well == want {
			return still
		}
		if time.Now().After(end) {
			t.Fatalf("never seen: beats %t", want)
		}
	}
}

func TestThePulseOfAProcess(t *testing.T) {
	working, spinning := process(t, works), process(t, spins)
	p := openPulse("/proc", working.Process.Pid)
	defer p.Close()
	until(t, p, 300*time.Millisecond, true)
	working.Process.Signal(syscall.SIGSTOP)
	until(t, p, 300*time.Millisecond, false)
	began := p.last.at
	for range 2 { // however often one looks
		if well, still := p.look(); well || !still.Equal(began) {
			t.Errorf("stopped, and well is %t, still since %s; want %s", well, still, began)
		}
	}
	working.Process.Signal(syscall.SIGCONT)
	until(t, p, 300*time.Millisecond, true)
	working.Process.Kill()
	working.Wait()
	until(t, p, time.Millisecond, false)

	mad := openPulse("/proc", spinning.Process.Pid)
	defer mad.Close()
	if still := until(t, mad, time.Second, false); !still.IsZero() {
		t.Error("it turns in circles, and is taken for one that does not run")
	}
	for _, none := range []*pulse{openPulse("/proc", 0), openPulse("/nowhere", 1)} {
		for range 2 {
			if well, still := none.look(); well || !still.IsZero() {
				t.Error("of nothing it is known how it is")
			}
		}
		none.Close()
	}
}

func TestABusyEnvoyIsNotPolled(t *testing.T) {
	working := process(t, works)
	f := &fake{state: "LIVE", stats: accepted}
	b := New(Options{Conditions: []Condition{Envoy}})
	p := proxyOf(ProxyOptions{Board: b, Admin: f, Every: time.Second, Seldom: time.Hour, Silence: time.Millisecond}, 15001, 15006)
	if err := p.Ready(t.Context(), working.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p.LogLine(envoy.Line{Message: envoy.ReadyMessage})
	time.Sleep(3500 * time.Millisecond)
	asked := func() (n int) {
		f.set(func(f *fake) { n = f.asked })
		return n
	}
	if n := asked(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	working.Process.Signal(syscall.SIGSTOP)
	f.set(func(f *fake) { f.err = errNoAnswer })
	await(t, b, "envoy-not-live: Envoy runs, and its admin interface has not answered")
	f.set(func(f *fake) { f.err = nil })
	if _, err := b.Wait(t.Context(), Outbound); err != nil {
		t.Error(err)
	}
}
