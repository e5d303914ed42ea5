package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A command that needs Linux is listed with its help on each system, and is an unusable input
// there, whatever its flags.
func TestNeedsLinux(t *testing.T) {
	for name, tt := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"alone":      {[]string{"run"}, Misused, "outrider: error: outrider run needs Linux"},
		"with flags": {[]string{"run", "-f", "pod.yaml", "--duration=10s", "-o", "json"}, Misused, "outrider: error: outrider run needs Linux"},
		"its help":   {[]string{"run", "--help"}, OK, "run a pod (needs Linux)"},
		"the list":   {[]string{"--help"}, OK, "run a pod (needs Linux)"},
	} {
		t.Run(name, func(t *testing.T) {
			root := &cobra.Command{Use: "outrider"}
			root.AddCommand(NeedsLinux("run", "run a pod"), VersionCommand())
			var out bytes.Buffer
			if status := Run(root, tt.args, &out, &out, nil); status != tt.status || !strings.Contains(out.String(), tt.want) {
				t.Errorf("status %d, want %d and %q:\n%s", status, tt.status, tt.want, &out)
			}
		})
	}
}
