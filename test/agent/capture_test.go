package agent

import (
	"os/exec"
	"strings"
	"testing"

	"outrider.dev/test/agent/harness"
)

// The agent proves capture for each address family: a pod is not ready if one family bypasses the proxy.
func TestCaptureOfBothFamilies(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Family = harness.Dual
	w.Serve()
	for family, want := range map[string]string{"ipv4": "127.0.0.6:15002", "ipv6": "[::6]:15002"} {
		w.Run(family, func(t *testing.T) {
			p := w.Pod("past-" + family)
			command(t, p, "nft", "insert", "rule", "inet", "outrider", "output", "meta", "nfproto", family, "accept")
			a := p.Agent()
			defer a.Kill()
			a.Unready("capture-not-in-place", want)
			p.Capture()
			a.Ready()
		})
	}
}

// Without a standby the agent cannot prove capture, and reports so.
func TestCaptureIsNotProvedWithoutStandby(t *testing.T) {
	a := lone(t, "OUTRIDER_STANDBY=off")
	s, _ := a.Status()
	notes := ""
	for _, n := range s.Notes {
		notes += n.Message + "\n"
	}
	if !strings.Contains(notes, "proved at init only: without a standby") {
		t.Errorf("notes: %q", notes)
	}
}

func command(t *testing.T, p *harness.Pod, name string, args ...string) {
	t.Helper()
	var out []byte
	var err error
	p.Do(func() { out, err = exec.Command(name, args...).CombinedOutput() })
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
