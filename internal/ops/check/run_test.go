package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
)

// runAt runs the checks that precede an installation, with a kubeconfig for this API server.
func runAt(t *testing.T, server string) []Check {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
		clusters: [{name: a, cluster: {server: "` + server + `"}}], users: [{name: a, user: {}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := kubeclient.NewFlags(own)
	*f.KubeConfig = file
	c, err := f.Client(nil)
	if err != nil {
		t.Fatal(err)
	}
	return Run(t.Context(), c, Options{Namespace: own, Before: true, Release: installation.Release{Name: "outrider"}})
}

// checks.md has a section for every check, and no other sections.
func TestEachCheckIsExplained(t *testing.T) {
	ids := map[string]bool{}
	for _, k := range Kinds() {
		ids[string(k.Code)] = true
		if k.Explanation == "" {
			t.Errorf("checks.md has no section %q", k.Code)
		}
	}
	for line := range strings.Lines(checks) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok && !ids[id] {
			t.Errorf("checks.md has a section %q, which is no check", id)
		}
	}
}
