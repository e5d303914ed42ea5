package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"outrider.dev/internal/base/cli"
)

// A search that a bound ends proves nothing and finds nothing: its exit status differs from a broken plan's. One broken
// plan decides the status of all pods.
func TestVerifyHasAStatusForBounded(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gate := file("gate.yaml", "{kind: Pod, apiVersion: v1, metadata: {name: gate, annotations: {outrider.dev/depends-on.shop: outrider-proxy}}, spec: {containers: [{name: shop, command: [/shop]}]}}")
	race := file("race.yaml", "{kind: Pod, apiVersion: v1, metadata: {name: race}, spec: {containers: [{name: shop}, {name: linkerd-proxy}]}}")
	for name, tt := range map[string]struct {
		args []string
		want int
	}{
		"holds":              {[]string{"-f", gate, "--faults", "0", "--time", "1h"}, cli.OK},
		"broken":             {[]string{"-f", race, "--time", "1h"}, cli.Failed},
		"unusable":           {[]string{"-f", filepath.Join(dir, "none.yaml")}, cli.Misused},
		"bounded":            {[]string{"-f", gate, "--states", "50", "--time", "1h"}, cli.Undecided},
		"bounded and broken": {[]string{"-f", gate, "-f", race, "--states", "50", "--time", "1h"}, cli.Failed},
	} {
		if got := run(append([]string{"verify"}, tt.args...), io.Discard, io.Discard); got != tt.want {
			t.Errorf("%s: exit status %d, want %d", name, got, tt.want)
		}
	}
}
