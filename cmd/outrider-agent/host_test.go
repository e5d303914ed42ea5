package main

import (
	"os/exec"
	"strings"
	"testing"

	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/test/ns"
)

// A capture command that is pasted into a shell of the machine changes nothing. The test runs it
// without capabilities: if it does not refuse, it fails later and the machine is not captured.
func TestCaptureRefusesTheMachine(t *testing.T) {
	ns.RequireRoot(t)
	if !setup.InHost() {
		t.Skip("this machine is in a network namespace itself, so no test can be in the first one")
	}
	tests := map[string]struct {
		args   []string
		status int
		stderr string
	}{
		"capture":               {[]string{"capture", "-i", "*", "-b", "*"}, 2, "the network namespace of the machine itself"},
		"parking alone":         {[]string{"capture", "--park-only"}, 2, "the network namespace of the machine itself"},
		"init":                  {[]string{"init", "-i", "*", "-b", "*"}, 2, "the network namespace of the machine itself"},
		"--host":                {[]string{"capture", "-i", "*", "-b", "*", "--host"}, 1, "NET_ADMIN"},
		"a dry run":             {[]string{"capture", "-i", "*", "-b", "*", "--dry-run"}, 0, ""},
		"a dry run by iptables": {[]string{"capture", "-i", "*", "-b", "*", "--dry-run", "--force-iptables-binary=legacy"}, 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--bounding-set=-all", "--inh-caps=-all", "outrider-agent"}, tt.args...)
			cmd := exec.Command("setpriv", args...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			cmd.Run()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != tt.status || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("%v; want status %d and %q\n%s", cmd.ProcessState, tt.status, tt.stderr, stderr.String())
			}
		})
	}
}
