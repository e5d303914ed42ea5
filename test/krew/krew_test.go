// Package krew holds the manifest for krew against krew's own validation, a module that only this
// folder has.
package krew

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// validate runs krew's own program on a manifest. Its installation needs the published archives.
func validate(t *testing.T, file string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "tool", "validate-krew-manifest", "-skip-install", "-manifest", file).CombinedOutput()
	return string(out), err
}

func TestKrewAcceptsTheManifest(t *testing.T) {
	dir := t.TempDir()
	sums, file := filepath.Join(dir, "checksums.txt"), filepath.Join(dir, "outrider.yaml")
	var lines strings.Builder
	for _, archive := range []string{"linux_amd64.tar.gz", "linux_arm64.tar.gz", "darwin_amd64.tar.gz", "darwin_arm64.tar.gz", "windows_amd64.zip"} {
		lines.WriteString(strings.Repeat("0123abcd", 8) + "  outrider_1.2.3_" + archive + "\n")
	}
	if err := os.WriteFile(sums, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	made := exec.CommandContext(t.Context(), "go", "run", "./build/krew", "-checksums", sums, "-o", file)
	made.Dir = filepath.Join("..", "..")
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := validate(t, file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range [][2]string{{"sha256: 0123", "sha256: xyz"}, {"version: v1.2.3", "version: devel"}, {"arch: arm64", "arch: amd64"}, {"os: linux", "os: plan9"}, {"bin: outrider", "bin: \"\""}} {
		bad := strings.Replace(string(text), wrong[0], wrong[1], 1)
		if bad == string(text) {
			t.Fatalf("the manifest has no %q:\n%s", wrong[0], text)
		}
		if err := os.WriteFile(file, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := validate(t, file); err == nil {
			t.Errorf("krew accepts %q:\n%s", wrong[1], out)
		}
	}
}
