package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	build "outrider.dev/build/commands"
)

// A tree is the set of files in a folder that git does not ignore. Go files are parsed.
type tree struct {
	root  string
	fset  *token.FileSet
	files []file
	types *checked // the types of all modules; nil until a rule needs them
	help  help     // the help of the programs; nil until a measure needs it

	folders map[build.Target]string // folders with the built programs, by target
}

// A file is a file of the repository. Its path is relative to the root, with slashes.
type file struct {
	path   string
	text   string
	syntax *ast.File // nil for a file that is not Go
}

func readTree(root string) (*tree, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	t := &tree{root: root, fset: token.NewFileSet()}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if os.IsNotExist(err) || err == nil && !info.Mode().IsRegular() {
			continue // a link, or a file that is deleted but still in git's index
		}
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		f := file{path: name, text: string(text)}
		if strings.HasSuffix(name, ".go") && !strings.Contains(name, "testdata/") {
			if f.syntax, err = parser.ParseFile(t.fset, name, text, parser.ParseComments); err != nil {
				return nil, err
			}
		}
		t.files = append(t.files, f)
	}
	return t, nil
}

// checked returns the types of all modules.
func (t *tree) checked() (*checked, error) {
	if t.types == nil {
		var err error
		if t.types, err = check(t); err != nil {
			return nil, err
		}
	}
	return t.types, nil
}

// built returns a folder with the programs as they are shipped for a system. It builds them when it is first
// called for that system.
func (t *tree) built(system, arch string) (string, error) {
	target := build.Target{System: system, Arch: arch}
	if dir, ok := t.folders[target]; ok {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "house-")
	if err != nil {
		return "", err
	}
	if t.folders == nil {
		t.folders = map[build.Target]string{}
	}
	t.folders[target] = dir
	return dir, build.BuildFor(context.Background(), target, dir, build.All()...)
}

// close removes the folders with the built programs.
func (t *tree) close() {
	for _, dir := range t.folders { // any order: each is removed
		os.RemoveAll(dir)
	}
}

// isTest reports whether the file is a test, or in test/, which only tests use.
func (f file) isTest() bool {
	return strings.HasSuffix(f.path, "_test.go") || strings.HasPrefix(f.path, "test/")
}

// below reports whether the file is in one of the folders or below one.
func (f file) below(folders ...string) bool {
	for _, d := range folders {
		if path.Dir(f.path) == d || strings.HasPrefix(f.path, d+"/") {
			return true
		}
	}
	return false
}

// code returns the Go files that are not tests.
func (t *tree) code() (out []file) {
	for _, f := range t.files {
		if f.syntax != nil && !f.isTest() {
			out = append(out, f)
		}
	}
	return out
}

// place returns FILE:LINE of a node. It removes the root, because files that were loaded as packages have
// absolute paths.
func (t *tree) place(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return strings.TrimPrefix(p.Filename, t.root+"/") + ":" + itoa(p.Line)
}
