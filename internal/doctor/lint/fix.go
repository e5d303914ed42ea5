package lint

import (
	"bytes"
	"reflect"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/shell"
)

// A change consists of an object before and after, as trees of package manifest.
type change struct{ before, after any }

// changeOf returns the change of an object, or of the part of it at a path. It returns nil if nothing changes, or
// if the object cannot be written as JSON.
func changeOf(at path, before, after any) *change {
	a, errA := manifest.Tree(before)
	b, errB := manifest.Tree(after)
	if errA != nil || errB != nil || reflect.DeepEqual(a, b) {
		return nil
	}
	return &change{manifest.Set(nil, at.keys(), a), manifest.Set(nil, at.keys(), b)}
}

// to returns the change from the subject's pod to another one, or nil if a container might then run another
// program.
func (s *subject) to(after *corev1.Pod) *change {
	for _, m := range s.members() {
		if c := containerOf(after, m.Name); c != nil && !shell.SameProgram(m.argv(), slices.Concat(c.Command, c.Args)) {
			return nil
		}
	}
	return changeOf(s.template, &s.Pod, after)
}

// patch applies a change to the text of one object. It fails if the result, parsed again, is not exactly the wanted
// object.
func (s *source) patch(root int, c *change) (*finding.Patch, error) {
	if c == nil || root < 0 || root >= len(s.objects) {
		return nil, manifest.ErrCannotEdit
	}
	o := s.objects[root]
	from, to, d := s.part(o.node)
	alone, index := d != nil, 0
	if !alone {
		from, to, index = o.from, o.to, o.index
		var err error
		if d, err = manifest.Read([]byte(s.text[from:to])); err != nil {
			return nil, err
		}
	}
	if _, err := d.SmallChange(manifest.Objects(d.Root())[index], c.before, c.after); err != nil {
		return nil, err
	}
	text, exact, err := d.Text()
	if err != nil || !exact {
		return nil, manifest.ErrCannotEdit
	}
	if dashes := s.text[from:to]; alone { // an item of a list begins after its dash
		n := len(dashes) - len(strings.TrimLeft(dashes, " -"))
		text = append([]byte(dashes[:n]), bytes.TrimLeft(text, " ")...)
	}
	return &finding.Patch{File: s.name, Edits: s.changes(from, to, string(text))}, nil
}

// part returns the text of one object alone, which is faster to parse and print than a list of thousands. The
// document is nil if the object shares lines or anchors with others.
func (s *source) part(n *yaml.Node) (from, to int, d *manifest.Document) {
	first, start := s.offset(n.Line, 1), s.offset(n.Line, n.Column)
	if n.Column == 1 || n.Style&yaml.FlowStyle != 0 || strings.Trim(s.text[first:start], " -") != "" {
		return 0, 0, nil
	}
	end := n.Line + 1
	for ; end <= len(s.lines); end++ {
		text := s.lineText(end)
		inner := strings.TrimLeft(text, " ")
		if inner != "" && inner[0] != '#' && len(text)-len(inner) < n.Column-1 {
			break
		}
	}
	to = len(s.text)
	if end <= len(s.lines) {
		to = s.lines[end-1]
	}
	d, err := manifest.Read([]byte(strings.Repeat(" ", start-first) + s.text[start:to]))
	if err != nil || len(manifest.Objects(d.Root())) != 1 {
		return 0, 0, nil
	}
	var whole, alone any
	if n.Decode(&whole) != nil || d.Root().Decode(&alone) != nil || !reflect.DeepEqual(whole, alone) {
		return 0, 0, nil
	}
	return first, to, d
}

// changes returns the difference to another text in whole lines, without the equal lines at the beginning and the
// end.
func (s *source) changes(from, to int, text string) []finding.Edit {
	first, last := strings.LastIndexByte(s.text[:from], '\n')+1, len(s.text)
	if to > 0 && s.text[to-1] == '\n' {
		last = to
	} else if n := strings.IndexByte(s.text[to:], '\n'); n >= 0 {
		last = to + n + 1
	}
	was, is := strings.SplitAfter(s.text[first:last], "\n"), strings.SplitAfter(s.text[first:from]+text+s.text[to:last], "\n")
	head := 0
	for head < len(was) && head < len(is) && was[head] == is[head] {
		head++
	}
	tail := 0
	for tail < len(was)-head && tail < len(is)-head && was[len(was)-1-tail] == is[len(is)-1-tail] {
		tail++
	}
	start := first + len(strings.Join(was[:head], ""))
	end := last - len(strings.Join(was[len(was)-tail:], ""))
	text = strings.Join(is[head:len(is)-tail], "")
	return []finding.Edit{{Start: start, End: end, Text: text, From: s.position(start), To: s.position(end)}}
}

// A Fixed is the result of [Fix].
type Fixed struct {
	Files    []File // all files, with the fixes applied
	Changed  []File // those of Files that changed
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

// Diff returns the differences of all files.
func (f Fixed) Diff() []byte {
	var out []byte
	for i, file := range f.Files {
		out = append(out, diff.Diff(file.Name, f.before[i].Data, file.Name, file.Data)...)
	}
	return out
}

// Fix applies the fixes of the selected findings in rounds: one fix for each object, and then all files are checked
// again, because one fix may resolve several findings.
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

// oneOfEach combines the fixes of a file: the first one of each object.
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

// maxRounds ends a loop in which two rules undo each other's fixes. No object has that many findings.
const maxRounds = 100
