package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// budgetsFile contains the limit of each measure, in lines of the form "LIMIT MEASURE".
const budgetsFile = "build/house/budgets.txt"

// budgets maps the names of measures to their limits.
type budgets map[string]int

func readBudgets(root string) (budgets, error) {
	text, err := os.ReadFile(filepath.Join(root, budgetsFile))
	if err != nil {
		return nil, err
	}
	return parseBudgets(string(text))
}

func parseBudgets(text string) (budgets, error) {
	out := budgets{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		limit, name, _ := strings.Cut(line, " ")
		value, err := strconv.Atoi(limit)
		if err != nil || value < 0 || name == "" {
			return nil, fmt.Errorf("%s:%d: %q: want a limit and the name of a measure, for example %q", budgetsFile, n, line, "0 copies of a port")
		}
		out[strings.TrimSpace(name)] = value
	}
	return out, nil
}

// lower lowers the limits in budgetsFile to the values that were reached, so that these cannot be exceeded again,
// and returns the number of changed limits.
func lower(root string, reached map[string]int) (lowered int, err error) {
	file := filepath.Join(root, budgetsFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		limit, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		old, err := strconv.Atoi(limit)
		if now, ok := reached[strings.TrimSpace(name)]; ok && err == nil && now < old {
			line = strings.Replace(line, limit, strconv.Itoa(now), 1)
			lowered++
		}
		out.WriteString(line)
	}
	if lowered == 0 {
		return 0, nil
	}
	return lowered, os.WriteFile(file, []byte(out.String()), 0o644)
}

// raises lists the commits that raise a limit but also change other files, or have no body that gives the reason.
func raises(t *tree) (result, error) {
	var r result
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = t.root
		out, err := cmd.Output()
		return string(out), err
	}
	log, err := git("log", "--format=%H", "--", budgetsFile)
	if err != nil {
		return r, fmt.Errorf("git log: %w", err)
	}
	for commit := range strings.FieldsSeq(log) {
		after, err := git("show", commit+":"+budgetsFile)
		if err != nil {
			continue // the commit moved or removed budgetsFile
		}
		before, err := git("show", commit+"^:"+budgetsFile)
		if err != nil {
			continue // the first commit, or the oldest of a shallow clone
		}
		was, err := parseBudgets(before)
		if err != nil {
			return r, err
		}
		is, err := parseBudgets(after)
		if err != nil {
			return r, err
		}
		raised := false
		for name, limit := range is { // any order: the loop only finds out whether any limit was raised
			if old, ok := was[name]; ok && limit > old {
				raised = true
			}
		}
		if !raised {
			continue
		}
		files, err := git("diff-tree", "--no-commit-id", "--name-only", "-r", commit)
		if err != nil {
			return r, err
		}
		body, err := git("log", "-1", "--format=%b", commit)
		if err != nil {
			return r, err
		}
		if strings.TrimSpace(files) != budgetsFile || strings.TrimSpace(body) == "" {
			title, err := git("log", "-1", "--format=%h %s", commit)
			if err != nil {
				return r, err
			}
			r.add(strings.TrimSpace(title))
		}
	}
	return r, nil
}
