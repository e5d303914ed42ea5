package main

import (
	"bytes"
	"fmt"
	"go/constant"
	"go/types"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	build "outrider.dev/build/commands"
)

// programs lists the commands whose help is counted. The help of outrider includes the commands of
// outrider-operate.
var programs = []string{"outrider", "outriderd", "outrider-agent", "outrider-node"}

// A help maps each command and subcommand, such as "outrider check", to the text that it prints for --help.
type help map[string]string

// helps runs each program and its subcommands with --help.
func helps(t *tree) (help, error) {
	dir, err := t.built(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	out := help{}
	for _, program := range programs {
		if err := out.ask(filepath.Join(dir, build.File(runtime.GOOS, program)), nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

var (
	subcommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +\S`)
	flagLine   = regexp.MustCompile(`(?m)^ {2,6}(?:-\w, )?--[a-z]`)
)

func (h help) ask(program string, words []string) error {
	cmd := exec.Command(program, append(words, "--help")...)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	h[path.Base(program)+" "+strings.Join(words, " ")] = stdout.String()
	_, list, ok := strings.Cut(stdout.String(), "\nAvailable Commands:\n")
	if !ok {
		return nil
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for _, m := range subcommand.FindAllStringSubmatch(list, -1) {
		if m[1] == "help" || m[1] == "completion" {
			continue
		}
		if err := h.ask(program, append(words[:len(words):len(words)], m[1])); err != nil {
			return err
		}
	}
	return nil
}

// asked returns the result of helps, which it runs only once.
func (t *tree) asked() (help, error) {
	if t.help == nil {
		var err error
		if t.help, err = helps(t); err != nil {
			return nil, err
		}
	}
	return t.help, nil
}

func commands(t *tree) (result, error) {
	all, err := t.asked()
	return result{now: len(all)}, err
}

// flags counts the flags of all commands. A flag of several commands is counted once for each of them.
func flags(t *tree) (result, error) {
	all, err := t.asked()
	var r result
	for _, text := range all { // any order: a sum
		r.now += len(flagLine.FindAllString(text, -1))
	}
	return r, err
}

// annotations lists the names that begin with outrider.dev/ in package contract: annotations, labels, and a
// taint.
func annotations(t *tree) (result, error) {
	checked, err := t.checked()
	if err != nil {
		return result{}, err
	}
	var r result
	for name, object := range checked.Defs { // any order: the result is a set
		c, ok := object.(*types.Const)
		if !ok || c.Val().Kind() != constant.String || !strings.HasPrefix(t.place(name), "internal/base/contract/") {
			continue
		}
		if value := constant.StringVal(c.Val()); len(value) > len("outrider.dev/") && strings.HasPrefix(value, "outrider.dev/") {
			r.add(value)
		}
	}
	return r, nil
}

// rows returns the measure that counts the names in the first column of a page's tables. A test checks that the
// page agrees with the code.
func rows(page string) func(*tree) (result, error) {
	name := regexp.MustCompile("`[^`]+`")
	return func(t *tree) (result, error) {
		var r result
		for _, f := range t.files {
			if f.path != page {
				continue
			}
			for line := range strings.Lines(f.text) {
				if cells := strings.Split(line, "|"); len(cells) > 2 && strings.TrimSpace(cells[0]) == "" {
					r.now += len(name.FindAllString(cells[1], -1))
				}
			}
		}
		return r, nil
	}
}

// pages returns the measure that counts the Markdown files in a folder, without README.md.
func pages(folder string) func(*tree) (result, error) {
	return func(t *tree) (result, error) {
		var r result
		for _, f := range t.files {
			if path.Dir(f.path) == folder && path.Ext(f.path) == ".md" && path.Base(f.path) != "README.md" {
				r.add(f.path)
			}
		}
		return r, nil
	}
}

// prose counts the words of the pages in docs, in thousands: with a limit in words, almost every edit would
// exceed it.
func prose(t *tree) (result, error) {
	var r result
	for _, f := range t.files {
		if path.Dir(f.path) == "docs" && path.Ext(f.path) == ".md" {
			r.now += len(strings.Fields(f.text))
		}
	}
	r.now = (r.now + 999) / 1000
	return r, nil
}

// modules counts the modules that the main one requires, directly or indirectly.
func modules(t *tree) (result, error) {
	var r result
	for _, f := range t.files {
		if f.path == "go.mod" {
			r.now = len(regexp.MustCompile(`(?m)^(?:require )?\s*\S+\.\S+/?\S* v\d`).FindAllString(f.text, -1))
		}
	}
	return r, nil
}

// large lists the packages with more than 3,000 lines of code, without tests.
func large(t *tree) (result, error) {
	lines := map[string]int{}
	for _, f := range t.code() {
		lines[path.Dir(f.path)] += strings.Count(f.text, "\n")
	}
	var r result
	for folder, n := range lines { // any order: the result is a set
		if n > 3000 {
			r.add(folder + " " + itoa(n))
		}
	}
	slices.Sort(r.places)
	return r, nil
}
