// Package source reads the input of lint, from files and folders or from a namespace of a cluster, and writes
// corrected files.
package source

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"outrider.dev/internal/base/atomicfile"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/lint"
)

// Files reads files, and the manifests in folders and their subfolders. The function read returns the text of a file
// and the name to use for it. In folders, Files skips YAML files without Kubernetes objects, such as the values of a
// chart.
func Files(names []string, read func(file string) (name string, data []byte, err error)) (files []lint.File, skipped []string, err error) {
	for _, name := range names {
		below, isFolder := []string{name}, false
		if info, err := os.Stat(name); name != "-" && err == nil && info.IsDir() {
			isFolder = true
			if below, err = cli.Manifests(name); err != nil {
				return nil, nil, err
			}
		}
		for _, file := range below {
			called, data, err := read(file)
			switch {
			case err != nil:
				return nil, nil, err
			case slices.ContainsFunc(files, func(f lint.File) bool { return f.Name == called }):
			case isFolder && isNoObject(called, data):
				skipped = append(skipped, file)
			default:
				files = append(files, lint.File{Name: called, Data: data})
			}
		}
	}
	return files, skipped, nil
}

// isNoObject reports whether a file is valid YAML, but not a Kubernetes object.
func isNoObject(name string, data []byte) bool {
	_, _, err := podfile.Parse(name, data)
	var input *podfile.InputError
	return errors.As(err, &input) && input.Object == "" && (input.Field == "kind" || strings.Contains(input.Err.Error(), "no Kubernetes object"))
}

// Hint returns advice if an error shows that the input is a template of a chart. Else it returns an empty string.
func Hint(err error) string {
	text := err.Error()
	if !errors.Is(err, os.ErrNotExist) && (strings.Contains(text, "{{") || strings.Contains(text, "invalid map key") || strings.Contains(text, "flow node")) {
		return "if this is a chart's template: helm template CHART | outrider lint -f -"
	}
	return ""
}

// Write replaces files atomically: even after a crash a file has either the old text or the new one. If a file is a
// symbolic link, Write replaces its target.
func Write(files []lint.File) error {
	for _, f := range files {
		if err := replace(f.Name, f.Data); err != nil {
			return err
		}
	}
	return nil
}

func replace(name string, data []byte) error {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(name, data, info.Mode().Perm()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
