package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// featuresFile lists the features of the project.
const featuresFile = "features.txt"

// A feature is a part of the project with its files, and a sentence (lose) about what a user would lose without
// it.
type feature struct {
	name, wing, lose               string
	paths                          []string // files, and folders ending with a slash
	code, tests, testdata, written int      // numbers of lines
}

// wings are the parts of the project to which a feature may belong.
var wings = []string{"base", "core", "doctor", "ops", "lab", "libraries", "test", "build", "pages"}

func readFeatures(root string) ([]*feature, error) {
	text, err := os.ReadFile(filepath.Join(root, featuresFile))
	if err != nil {
		return nil, err
	}
	return parseFeatures(string(text))
}

// parseFeatures reads entries of the form
//
//	NAME (WING): SENTENCE
//		PATH ...
func parseFeatures(text string) (out []*feature, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		bad := func(want string) error {
			return fmt.Errorf("%s:%d: %q: want %s", featuresFile, n, strings.TrimSpace(line), want)
		}
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "\t") && len(out) > 0:
			last := out[len(out)-1]
			last.paths = append(last.paths, strings.Fields(line)...)
		default:
			head, lose, ok := strings.Cut(strings.TrimSpace(line), "): ")
			name, wing, named := strings.Cut(head, " (")
			if !ok || !named || !slices.Contains(wings, wing) || !strings.HasSuffix(lose, ".") {
				return nil, bad("NAME (WING): what a user would lose. WING is one of " + strings.Join(wings, ", "))
			}
			out = append(out, &feature{name: name, wing: wing, lose: lose})
		}
	}
	if len(out) == 0 {
		return nil, errors.New(featuresFile + " has no feature")
	}
	return out, nil
}

// count adds the lines of each file to the feature with the longest path that contains it. It returns the files
// that belong to no feature, and the paths of features to which no file belongs.
func count(t *tree, all []*feature) (homeless, empty []string) {
	used := map[string]bool{}
	for _, f := range t.files {
		var of *feature
		longest := ""
		for _, x := range all {
			for _, p := range x.paths {
				if (f.path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(f.path, p)) && len(p) > len(longest) {
					of, longest = x, p
				}
			}
		}
		if of == nil {
			homeless = append(homeless, f.path)
			continue
		}
		used[longest] = true
		lines := strings.Count(f.text, "\n")
		switch {
		case strings.Contains(f.path, "testdata/"):
			of.testdata += lines
		case !strings.HasSuffix(f.path, ".go"):
			of.written += lines
		case f.isTest():
			of.tests += lines
		default:
			of.code += lines
		}
	}
	for _, x := range all {
		for _, p := range x.paths {
			if !used[p] {
				empty = append(empty, p)
			}
		}
	}
	return homeless, empty
}

// ledger prints the number of lines of each feature and of each wing. It returns an error for files and paths
// that [count] returns.
func ledger(t *tree, stdout io.Writer) error {
	all, err := readFeatures(t.root)
	if err != nil {
		return err
	}
	homeless, empty := count(t, all)
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "feature\twing\tcode\ttests\ttestdata\tother")
	sums := map[string]*feature{}
	for _, x := range all {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\n", x.name, x.wing, x.code, x.tests, x.testdata, x.written)
		for _, name := range []string{x.wing, "all"} {
			if sums[name] == nil {
				sums[name] = &feature{}
			}
			s := sums[name]
			s.code, s.tests, s.testdata, s.written = s.code+x.code, s.tests+x.tests, s.testdata+x.testdata, s.written+x.written
		}
	}
	for _, name := range append(slices.Clone(wings), "all") {
		if s := sums[name]; s != nil {
			fmt.Fprintf(table, "\t%s\t%d\t%d\t%d\t%d\n", name, s.code, s.tests, s.testdata, s.written)
		}
	}
	fmt.Fprintln(table)
	table.Flush()
	for _, f := range homeless {
		err = errors.Join(err, fmt.Errorf("%s: %s is of no feature: add its path to one, or a feature with the sentence that says what a user would lose without it", featuresFile, f))
	}
	for _, p := range empty {
		err = errors.Join(err, fmt.Errorf("%s: %s has no file of its own: remove it", featuresFile, p))
	}
	return err
}
