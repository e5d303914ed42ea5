package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/lint/finding"
)

// podOps are the changes from one pod to the other, as of the object that they are in.
func podOps(before, after *corev1.Pod, template path) []op {
	a, errA := tree(before)
	b, errB := tree(after)
	if errA != nil || errB != nil {
		return nil
	}
	var out []op
	compare(a, b, template, func(o op) { out = append(out, o) })
	return out
}

func tree(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out any
	return out, json.Unmarshal(text, &out)
}

// compare finds what is to be changed to get from a to b.
func compare(a, b any, at path, found func(op)) {
	switch was := a.(type) {
	case map[string]any:
		is, ok := b.(map[string]any)
		if !ok {
			break
		}
		for _, k := range slices.Sorted(maps.Keys(was)) {
			if _, still := is[k]; !still {
				found(op{at.plus(k), nil})
			}
		}
		for _, k := range slices.Sorted(maps.Keys(is)) {
			old, had := was[k]
			if had {
				compare(old, is[k], at.plus(k), found)
				continue
			}
			added(is[k], at.plus(k), found)
		}
		return
	case []any:
		if is, ok := b.([]any); ok && len(is) == len(was) {
			for i := range was {
				compare(was[i], is[i], at.plus(i), found)
			}
			return
		}
	}
	if !reflect.DeepEqual(a, b) {
		found(op{at, b})
	}
}

// added sets the leaves of what is new.
func added(v any, at path, found func(op)) {
	m, isMap := v.(map[string]any)
	if !isMap || len(m) == 0 {
		found(op{at, v})
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		added(m[k], at.plus(k), found)
	}
}

// patch writes ops into the text of one object. It gives nothing if the outcome, read
// again, is not exactly what was wanted, or if anything else in the file would change.
func (s *source) patch(root int, ops []op) (*finding.Patch, error) {
	if len(ops) == 0 || root < 0 || root >= len(s.roots) {
		return nil, errCannotEdit
	}
	part, from, ok := s.part(root)
	if !ok {
		return s.rewrite(root, ops)
	}
	p, err := part.rewrite(0, ops)
	if err != nil {
		return nil, err
	}
	for i, e := range p.Edits {
		e.Start, e.End = e.Start+from, e.End+from
		e.From, e.To = s.position(e.Start), s.position(e.End)
		p.Edits[i] = e
	}
	return p, nil
}

// part is the text of one object alone, which is quicker to read again and again than a
// file of thousands. There is none where the object shares anything with others: its
// lines, or what has an anchor.
func (s *source) part(root int) (*source, int, bool) {
	n := s.roots[root]
	if len(s.roots) == 1 || n.Style&yaml.FlowStyle != 0 || shares(n) {
		return nil, 0, false
	}
	first, start := s.offset(n.Line, 1), s.offset(n.Line, n.Column)
	if strings.Trim(s.text[first:start], " -") != "" {
		return nil, 0, false
	}
	end := n.Line + 1
	for ; end <= len(s.lines); end++ {
		text := s.lineText(end)
		inner := strings.TrimLeft(text, " ")
		if inner != "" && inner[0] != '#' && len(text)-len(inner) < n.Column-1 || strings.HasPrefix(text, "---") || strings.HasPrefix(text, "...") ||
			n.Column > 1 && strings.HasPrefix(inner, "- ") && len(text)-len(inner) < n.Column-1 {
			break
		}
	}
	to := len(s.text)
	if end <= len(s.lines) {
		to = s.lines[end-1]
	}
	part := newSource(s.name, strings.Repeat(" ", start-first)+s.text[start:to])
	if len(part.roots) != 1 {
		return nil, 0, false
	}
	whole, err := decoded(n)
	alone, err2 := decoded(part.roots[0])
	return part, first, err == nil && err2 == nil && reflect.DeepEqual(whole, alone)
}

func shares(n *yaml.Node) bool {
	return n.Anchor != "" || n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, shares)
}

// rewrite makes the changes one after the other, each on the text as it then is, and
// confirms the outcome.
func (s *source) rewrite(root int, ops []op) (*finding.Patch, error) {
	now, edits := s, []finding.Edit(nil)
	for i, o := range ops {
		e := editor{source: now, root: now.roots[root]}
		if err := e.apply(o); err != nil {
			return nil, fmt.Errorf("%s: %w", o.at, err)
		}
		edits = e.edits
		next, err := (&finding.Patch{File: s.name, Edits: edits}).Apply([]byte(now.text))
		if err != nil {
			return nil, err
		}
		if now = newSource(s.name, string(next)); len(now.roots) != len(s.roots) {
			return nil, errCannotEdit
		}
		if i > 0 {
			edits = s.changes(now.text)
		}
	}
	return &finding.Patch{File: s.name, Edits: edits}, s.confirm(now, root, ops)
}

// changes is the difference to another text, in whole lines: what is between the lines
// that are the same at the beginning and at the end.
func (s *source) changes(to string) []finding.Edit {
	was, is := strings.SplitAfter(s.text, "\n"), strings.SplitAfter(to, "\n")
	head := 0
	for head < len(was) && head < len(is) && was[head] == is[head] {
		head++
	}
	tail := 0
	for tail < len(was)-head && tail < len(is)-head && was[len(was)-1-tail] == is[len(is)-1-tail] {
		tail++
	}
	start := len(strings.Join(was[:head], ""))
	end := len(s.text) - len(strings.Join(was[len(was)-tail:], ""))
	text := strings.Join(is[head:len(is)-tail], "")
	return []finding.Edit{{Start: start, End: end, Text: text, From: s.position(start), To: s.position(end)}}
}

// confirm compares each object with what it should be now.
func (s *source) confirm(after *source, root int, ops []op) error {
	for i := range s.roots {
		want, err := decoded(s.roots[i])
		if err != nil {
			return err
		}
		if i == root {
			for _, o := range ops {
				value, err := tree(o.value)
				if err != nil {
					return err
				}
				want = with(want, o.at, value)
			}
		}
		got, err := decoded(after.roots[i])
		if err != nil || !reflect.DeepEqual(got, want) {
			return errCannotEdit
		}
	}
	return nil
}

func decoded(n *yaml.Node) (any, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	return tree(v)
}

// with is a tree after an op. Mappings that get empty go, as they do in the text.
func with(t any, at path, value any) any {
	if len(at) == 0 {
		return value
	}
	switch step := at[0].(type) {
	case string:
		m, _ := t.(map[string]any)
		out := maps.Clone(m)
		if out == nil {
			out = map[string]any{}
		}
		below := with(out[step], at[1:], value)
		if empty, isMap := below.(map[string]any); below == nil || value == nil && isMap && len(empty) == 0 {
			delete(out, step)
		} else {
			out[step] = below
		}
		return out
	case int:
		l, _ := t.([]any)
		if step < 0 || step >= len(l) {
			return t
		}
		out := slices.Clone(l)
		out[step] = with(l[step], at[1:], value)
		return out
	}
	return t
}

// Fix puts the fixes of the findings that want says into the files, in rounds: one for each
// object, then all is looked at anew, because a fix may be another finding's too. It
// returns the files that changed, and what was fixed.
func Fix(files []File, o Options, want func(finding.Finding) bool) ([]File, []finding.Finding, error) {
	changed := map[string]bool{}
	files = slices.Clone(files)
	var done []finding.Finding
	for range maxRounds {
		report, err := Lint(files, o)
		if err != nil {
			return nil, nil, err
		}
		all := slices.DeleteFunc(report.Findings, func(f finding.Finding) bool { return f.Fix == nil || !want(f) })
		if len(all) == 0 {
			break
		}
		for i := range files {
			patch, fixed := oneOfEach(files[i].Name, all)
			if len(fixed) == 0 {
				continue
			}
			if files[i].Data, err = patch.Apply(files[i].Data); err != nil {
				return nil, nil, err
			}
			changed[files[i].Name] = true
			done = append(done, fixed...)
		}
	}
	return slices.DeleteFunc(files, func(f File) bool { return !changed[f.Name] }), done, nil
}

// oneOfEach is the fixes of a file together, the first one of each object.
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

// maxRounds ends what would else go on if two rules undid each other's fixes. No object
// has so many findings.
const maxRounds = 100
