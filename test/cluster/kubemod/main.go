// Command kubemod writes the go.mod of test/cluster/kube for one version of Kubernetes:
//
//	go run ./test/cluster/kubemod v1.36.3   # writes test/cluster/kube/v1.36/go.mod and go.sum
//
// Kubernetes requires its own libraries as v0.0.0 and replaces them by directories of its
// source tree. A module that imports Kubernetes must replace each library by the version that
// was published with the same release. This program writes these replacements.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run is main with its arguments and output as parameters. It returns the exit status: 0 success, 1
// the go command failed, 2 usage.
func run(args []string, stderr io.Writer) int {
	if len(args) != 1 || !release.MatchString(args[0]) {
		fmt.Fprintln(stderr, "usage: go run ./test/cluster/kubemod v1.MINOR.PATCH   (in the root of the repository)")
		return 2
	}
	if err := write(filepath.Join("test", "cluster", "kube"), args[0]); err != nil {
		fmt.Fprintf(stderr, "kubemod: error: %v\n", err)
		return 1
	}
	return 0
}

var (
	release = regexp.MustCompile(`^v1\.\d+\.\d+$`)
	staging = regexp.MustCompile(`(?m)^\s+(k8s\.io/\S+) v0\.0\.0(?: //.*)?$`)
	// Both directives name a Go release. The godebug directive selects the release whose behaviour the program has.
	directive = regexp.MustCompile(`(?m)^(go|godebug) \S+$`)
)

// write writes <dir>/v1.MINOR/go.mod and lets the go command complete it.
func write(dir, version string) error {
	upstream, err := requirements(version)
	if err != nil {
		return err
	}
	minor := version[:strings.LastIndex(version, ".")]
	if err := os.MkdirAll(filepath.Join(dir, minor), 0o755); err != nil {
		return err
	}
	modfile := filepath.Join(minor, "go.mod")
	if err := os.WriteFile(filepath.Join(dir, modfile), goMod(version, upstream), 0o644); err != nil {
		return err
	}
	tidy := exec.Command("go", "mod", "tidy", "-modfile="+modfile)
	tidy.Dir, tidy.Stderr = dir, os.Stderr
	if err := tidy.Run(); err != nil {
		return fmt.Errorf("tidying %s: %w", modfile, err)
	}
	return nil
}

// requirements returns the go.mod with which this version of Kubernetes was released.
func requirements(version string) ([]byte, error) {
	module := "k8s.io/kubernetes@" + version
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var got struct{ GoMod, Error string }
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil {
		return nil, fmt.Errorf("downloading %s: %w", module, err)
	}
	if got.Error != "" {
		return nil, fmt.Errorf("downloading %s: %s", module, got.Error)
	}
	return os.ReadFile(got.GoMod)
}

// goMod returns a go.mod that requires Kubernetes and replaces its libraries.
func goMod(version string, upstream []byte) []byte {
	var b strings.Builder
	b.WriteString("// Written by test/cluster/kubemod.\nmodule outrider.dev/test/cluster/kube\n\n")
	for _, line := range directive.FindAllString(string(upstream), -1) {
		b.WriteString(line + "\n\n")
	}
	fmt.Fprintf(&b, "require k8s.io/kubernetes %s\n\nreplace (\n", version)
	for _, m := range staging.FindAllStringSubmatch(string(upstream), -1) {
		fmt.Fprintf(&b, "\t%s => %s v0%s\n", m[1], m[1], strings.TrimPrefix(version, "v1"))
	}
	b.WriteString(")\n")
	return []byte(b.String())
}
