package lint

import (
	"reflect"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/shell"
)

// A change consists of the versions of an object before and after, as trees of package manifest.
type change struct{ before, after any }

// changeOf returns the change of an object in which the part at a path changes from before to after. It returns nil
// if they are equal, or if one cannot be written as JSON.
func changeOf(at path, before, after any) *change {
	a, errA := manifest.Tree(before)
	b, errB := manifest.Tree(after)
	if errA != nil || errB != nil || reflect.DeepEqual(a, b) {
		return nil
	}
	return &change{manifest.Set(nil, at.keys(), a), manifest.Set(nil, at.keys(), b)}
}

// to returns the change from the subject's pod to another version of it. It returns nil if a container might then run
// another program.
func (s *subject) to(after *corev1.Pod) *change {
	for _, m := range s.members() {
		if c := containerOf(after, m.Name); c != nil && !shell.SameProgram(m.argv(), slices.Concat(c.Command, c.Args)) {
			return nil
		}
	}
	return changeOf(s.template, &s.Pod, after)
}

// A Fixed is the result of [Fix].
type Fixed struct {
	Files    []File // all files, with the fixes applied
	Changed  []File // the elements of Files that changed
	Findings []finding.Finding

	before []File
}

// Texts returns the text of each file.
func (f Fixed) Texts() [][]byte {
	var out [][]byte
	for _, file := range f.Files {
		out = append(out, file.Data)
	}
	return out
}

// Diff returns the differences of all files to their original texts, in the unified format.
func (f Fixed) Diff() []byte {
	var out []byte
	for i, file := range f.Files {
		out = append(out, diff.Diff(file.Name, f.before[i].Data, file.Name, file.Data)...)
	}
	return out
}

// Fix applies the fixes of the findings for which the function selects returns true. It works in rounds: each applies
// one fix for each object, and then all files are checked again, because one fix may resolve several findings. It
// fails if the files cannot be read.
func Fix(files []File, o Options, selects func(finding.Finding) bool) (Fixed, error) {
	out := Fixed{Files: slices.Clone(files), before: files}
	changed := map[string]bool{}
	files = out.Files
	for range maxRounds {
		report, err := Lint(files, o)
		if err != nil {
			return Fixed{}, err
		}
		all := slices.DeleteFunc(report.Findings, func(f finding.Finding) bool { return f.Fix == nil || !selects(f) })
		if len(all) == 0 {
			break
		}
		for i := range files {
			patch, fixed := oneOfEach(files[i].Name, all)
			if len(fixed) == 0 {
				continue
			}
			if files[i].Data, err = patch.Apply(files[i].Data); err != nil {
				return Fixed{}, err
			}
			changed[files[i].Name] = true
			out.Findings = append(out.Findings, fixed...)
		}
	}
	out.Changed = slices.DeleteFunc(slices.Clone(files), func(f File) bool { return !changed[f.Name] })
	return out, nil
}

// oneOfEach combines fixes for a file into one patch: the first fix of each object, unless it overlaps another one.
// It also returns the findings of these fixes.
func oneOfEach(file string, all []finding.Finding) (*finding.Patch, []finding.Finding) {
	out := &finding.Patch{File: file}
	var fixed []finding.Finding
	seen := map[finding.Object]bool{}
	for _, f := range all {
		clash := func(e finding.Edit) bool {
			return slices.ContainsFunc(out.Edits, func(o finding.Edit) bool { return e.Start <= o.End && o.Start <= e.End })
		}
		if f.Fix.File != file || seen[f.Object] || slices.ContainsFunc(f.Fix.Edits, clash) {
			continue
		}
		seen[f.Object] = true
		out.Edits = append(out.Edits, f.Fix.Edits...)
		fixed = append(fixed, f)
	}
	return out, fixed
}

// maxRounds ends [Fix] if two rules undo each other's fixes. No object has that many findings.
const maxRounds = 100
