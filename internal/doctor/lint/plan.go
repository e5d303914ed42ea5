package lint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/internal/core/pod/validation"
	"outrider.dev/internal/doctor/lint/kinds"
	"outrider.dev/startup"
)

// unknownFields finds fields that the API server drops, with a warning at most.
func unknownFields(s subject, b *builder) {
	for _, field := range s.Unknown {
		at := parsePath(field)
		if name := fmt.Sprint(at[len(at)-1]); strings.HasPrefix(name, "$") || strings.ContainsAny(name, "()") {
			continue // a directive of a strategic merge patch, or a condition in a test's description of a pod, as Chainsaw has
		}
		b.addAt(s.at, clue{code: "unknown-field", title: field + " is not a field of a pod", field: at, evidence: fmt.Sprint(at[len(at)-1]),
			why: "the API server drops it, so it has no effect", do: "check its spelling and its indentation"})
	}
}

// placeholder matches a text that a program replaces before the manifest is applied: envsubst, Helm, kpt, a script with sed.
var placeholder = regexp.MustCompile(`\$\{?\w|\$\(|\{\{|%\w+%|@\w+@|__\w+__|<[\w -]+>`)

// planWorks reports invalid annotations, and the problems that packages startup and podspec find in the plan.
func planWorks(s subject, b *builder) {
	for _, err := range annotationErrors(s.readErr) {
		b.add(clue{code: "invalid-annotation", title: strings.TrimPrefix(err.Error(), "annotation "), field: annotation(err.Key), evidence: s.Pod.Annotations[err.Key],
			why: "injection refuses the pod", do: "write it as docs/plan.md shows", source: "docs/plan.md"})
	}
	var large *validation.SizeError
	var field *validation.FieldError
	switch at := (path{"spec"}); {
	case errors.As(s.readErr, &field):
		at = parsePath(field.Field)
		fallthrough
	case errors.As(s.readErr, &large):
		b.add(clue{code: "pod-too-large", title: s.readErr.Error(), field: at, why: "its order cannot be read, and injection refuses the pod",
			do: "split the pod, request fewer edges, or order init containers by their list alone", source: "docs/inject.md"})
	}
	if s.readErr != nil {
		return // the plan lacks edges that the annotations request
	}
	for _, f := range mechanism.Findings(s.reading, s.choices, s.on) {
		if ofWorkAround(f) {
			continue
		}
		field, evidence := s.fieldOf(f)
		if f.Code == "invalid-name" && placeholder.MatchString(evidence) {
			continue // the file is a template
		}
		kind, _ := kinds.Of(string(f.Code))
		b.add(clue{code: finding.Code(f.Code), severity: finding.Severity(f.Level), title: f.Message, field: field, evidence: evidence,
			do: cmp.Or(f.Remedy, kind.Explanation), run: fmt.Sprintf("outrider plan %s", b.input(s.File)), why: kind.Title})
	}
}

// injectionRefuses reports the reason why injection would refuse the pod, unless another rule has found an error.
func injectionRefuses(s subject, b *builder) {
	isError := func(f finding.Finding) bool { return f.Severity == finding.Error }
	if s.refusal == nil || slices.ContainsFunc(b.found, isError) {
		return
	}
	c := clue{code: "injection-refused", title: s.refusal.Sentence, field: path{"spec"},
		why: "the API server would not create the pod: a Deployment is accepted, and then has no pods; only an event of its ReplicaSet reports it",
		do:  cmp.Or(s.refusal.Hint, "remove the setting, or correct it"), run: fmt.Sprintf("outrider inject %s", b.input(s.File))}
	for _, key := range slices.Sorted(maps.Keys(s.Pod.Annotations)) {
		if strings.Contains(s.refusal.Sentence, key) {
			c.field, c.evidence = annotation(key), s.Pod.Annotations[key]
		}
	}
	for _, e := range s.reading.Requested {
		if field, text, ok := s.annotationOf(e); ok && strings.HasPrefix(c.title, `"`+e.To+" after "+e.From+" ") {
			c.field, c.evidence = field, text
		}
	}
	b.add(c)
}

func annotationErrors(err error) []*request.Error {
	var one *request.Error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []*request.Error
		for _, e := range joined.Unwrap() {
			out = append(out, annotationErrors(e)...)
		}
		return out
	}
	if errors.As(err, &one) {
		return []*request.Error{one}
	}
	return nil
}

// ofWorkAround reports whether a finding is about a work-around, which has its own rules.
func ofWorkAround(f startup.Finding) bool {
	return f.Edge != nil && slices.Contains(startup.WorkArounds, f.Edge.By)
}

// fieldOf returns the field to which a finding about the plan refers, and the text in it: the annotation that
// requests the edge, the field with the mechanism that keeps it, or the name of the container.
func (s *subject) fieldOf(f startup.Finding) (path, string) {
	if f.Edge != nil {
		if field, text, ok := s.annotationOf(*f.Edge); ok {
			return field, text
		}
		for _, found := range s.reading.Found {
			if slices.ContainsFunc(found.Edges, func(e startup.Edge) bool { return e.From == f.Edge.From && e.To == f.Edge.To }) {
				return parsePath(found.Evidence.Field), found.Evidence.Text
			}
		}
	}
	for _, name := range f.Names {
		if m, ok := s.member(name); ok && f.Code != startup.Cycle {
			return m.field.plus("name"), name
		}
	}
	for _, e := range s.reading.Requested {
		if slices.Contains(f.Names, e.From) && slices.Contains(f.Names, e.To) {
			field, text, _ := s.annotationOf(e)
			return field, text
		}
	}
	return path{"spec"}, ""
}

// annotationOf returns the annotation that names an edge.
func (s *subject) annotationOf(e startup.Edge) (path, string, bool) {
	short := contract.DependsOn + "." + e.To
	if v, ok := s.Pod.Annotations[short]; ok && strings.Contains(v, e.From) {
		return annotation(short), e.From, true
	}
	if v, ok := s.Pod.Annotations[contract.DependsOn]; ok && strings.Contains(v, e.From) {
		return annotation(contract.DependsOn), e.To + ":", true
	}
	return nil, "", false
}
