package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/kubeclient"
)

// runAt makes the checks before an installation, by a kubeconfig.
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
	c, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	return Run(t.Context(), c, Options{Namespace: own, Before: true, Release: Release{Name: "outrider"}})
}

// The page that a check links to explains it, and no other.
func TestThePageHasEachCheck(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	all := slices.Concat(before, installed, []probe{kernel})
	for _, topic := range topics {
		all = append(all, topic.probe)
	}
	for _, p := range all {
		ids[p.id] = true
		if !strings.Contains(string(text), "\n## "+p.id+"\n") {
			t.Errorf("docs/troubleshooting.md has no section %q", p.id)
		}
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok && !ids[id] {
			t.Errorf("docs/troubleshooting.md has a section %q, which is no check", id)
		}
	}
}
