package proxy

import (
	"strings"
	"testing"

	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/agent/identity"
)

// An error about an option names the user's setting.
func TestOptionsAreNamedAsTheyWereWritten(t *testing.T) {
	o := envoy.Options{Node: envoy.Node{ID: "\n", Cluster: "\n"}}
	_, keeper := identity.NewKeeper(identity.Options{Dir: "d", OutputDir: "d"})
	tests := map[error][]string{
		o.Check(): {"variables POD_NAME, POD_NAMESPACE, INSTANCE_IP and --domain: ", "serviceCluster: "},
		keeper:    {"variable OUTPUT_CERTS: d is Dir"},
	}
	for err, want := range tests {
		got := strings.Split(named(err).Error(), "\n")
		if len(got) != len(want) {
			t.Errorf("%q; want %d lines", got, len(want))
		}
		for _, line := range want {
			if !strings.Contains("\n"+strings.Join(got, "\n"), "\n"+line) {
				t.Errorf("%q; want a line %q", got, line)
			}
		}
	}
}
