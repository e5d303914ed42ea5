package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/lint"
	"outrider.dev/internal/lint/finding"
	"outrider.dev/internal/pod/podspec"
)

// runFix prints or writes the files with the fixes in them. What was fixed, and what is
// left, goes to standard error.
func (o *lintOptions) runFix(cmd *cobra.Command, files []lint.File) error {
	changed, done, err := lint.Fix(files, o.options(), o.wants)
	if err != nil {
		return &cli.UsageError{Err: err, Hint: lintHint(err)}
	}
	after := slices.Clone(files)
	for i, f := range after {
		if j := slices.IndexFunc(changed, func(c lint.File) bool { return c.Name == f.Name }); j >= 0 {
			after[i] = changed[j]
		}
	}
	switch {
	case o.write:
		err = writeFiles(changed)
	case o.diff:
		err = printed(cmd.OutOrStdout(), diffs(files, after))
	default:
		err = printed(cmd.OutOrStdout(), together(after))
	}
	if err != nil {
		return err
	}
	left, err := o.lint(after)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	said := "fixed"
	if !o.write {
		said = "would fix"
	}
	w := cmd.ErrOrStderr()
	for _, f := range done {
		fmt.Fprintf(w, "outrider: %s %s: %s [%s]\n", said, f.File, f.Title, f.Code)
	}
	fmt.Fprintf(w, "outrider: left: %s in %s\n", finding.Summary(left.Findings), counted(left))
	return o.verdict(left)
}

func writeFiles(files []lint.File) error {
	for _, f := range files {
		if err := replaceFile(f.Name, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile leaves the old text or the new one, whatever happens meanwhile. Of a link
// it changes what the link leads to.
func replaceFile(name string, data []byte) error {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	t, err := os.CreateTemp(filepath.Dir(name), ".outrider-*")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name()) // gone, if it became the file
	_, err = t.Write(data)
	if err := errors.Join(err, t.Chmod(info.Mode().Perm()), t.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return os.Rename(t.Name(), name)
}

// diffs is for people and for patch -p0.
func diffs(before, after []lint.File) string {
	var b strings.Builder
	for i := range before {
		b.Write(diff.Diff(before[i].Name, before[i].Data, after[i].Name, after[i].Data))
	}
	return b.String()
}

// together is all files as one, as kubectl apply -f - takes it.
func together(files []lint.File) string {
	var b strings.Builder
	for i, f := range files {
		if i > 0 && !bytes.HasPrefix(f.Data, []byte("---")) {
			if text := b.String(); text != "" && !strings.HasSuffix(text, "\n") {
				b.WriteByte('\n')
			}
			b.WriteString("---\n")
		}
		b.Write(f.Data)
	}
	return b.String()
}

// lintFiles reads files, and the manifests below folders. In a folder, what is YAML but no
// Kubernetes object (a chart's values, a kustomization) is passed over, and said.
func lintFiles(cmd *cobra.Command, names []string) ([]lint.File, error) {
	var out []lint.File
	add := func(file string) error {
		name, data, err := readText(cmd, file)
		if err == nil && !slices.ContainsFunc(out, func(f lint.File) bool { return f.Name == name }) {
			out = append(out, lint.File{Name: name, Data: data})
		}
		return err
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || err != nil || !info.IsDir() {
			if err := add(name); err != nil {
				return nil, err
			}
			continue
		}
		found, err := manifestsBelow(name)
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			n := len(out)
			if err := add(file); err != nil {
				return nil, err
			}
			if len(out) > n && isNoObject(out[n]) {
				fmt.Fprintf(cmd.ErrOrStderr(), "outrider: note: %s is no Kubernetes object; it is passed over\n", file)
				out = out[:n]
			}
		}
	}
	return out, nil
}

// manifestsBelow are the YAML and JSON files of a folder and those in it, without hidden ones.
func manifestsBelow(folder string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case file != folder && strings.HasPrefix(d.Name(), ".") && d.IsDir():
			return fs.SkipDir
		case !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) && !strings.HasPrefix(d.Name(), "."):
			out = append(out, file)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s has no file that ends with .yaml, .yml or .json", folder)
	}
	return out, err
}

// isNoObject says whether a file can be read, but what is in it has no kind.
func isNoObject(f lint.File) bool {
	_, _, err := podspec.Parse(f.Name, f.Data)
	var input *podspec.InputError
	return errors.As(err, &input) && input.Object == "" && (input.Field == "kind" || strings.Contains(input.Err.Error(), "no Kubernetes object"))
}
