package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest/decodeerror"
	"outrider.dev/startup"
)

// perContainer is the beginning of the annotation's name in the short form.
const perContainer = contract.DependsOn + "."

// An Error reports an invalid annotation.
type Error struct {
	Key       string
	Container string // the container that waits, if known
	Reason    string
}

func (e *Error) Error() string {
	if e.Container == "" {
		return fmt.Sprintf("annotation %s: %s", e.Key, e.Reason)
	}
	return fmt.Sprintf("annotation %s: container %s: %s", e.Key, e.Container, e.Reason)
}

// IsEdges reports whether an annotation with that name requests edges, in the long or the short form.
func IsEdges(key string) bool {
	return key == contract.DependsOn || strings.HasPrefix(key, perContainer)
}

// Edges returns the edges that a pod's annotations request, in the order of the annotations' names. The long form
// of the annotation is for all containers:
//
//	outrider.dev/depends-on: |
//	  app:  {outrider-proxy: healthy, migrate: completed, cache: {condition: healthy, timeout: 20s, on-timeout: continue}}
//	  "*":  {outrider-proxy: healthy}
//
// The short form is for one container:
//
//	outrider.dev/depends-on.app: outrider-proxy, migrate=completed
//
// Edges checks only the syntax; [startup.Plan.Validate] checks whether the containers exist. Callers pass
// manifest.DecodeAnnotationStrict as decode; it is a parameter so that this package need not import package
// manifest.
func Edges(annotations map[string]string, decode func(string, any) error) ([]startup.Edge, error) {
	var edges []startup.Edge
	var errs []error
	seen := map[startup.Ends]bool{}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		var found []startup.Edge
		var err error
		switch to, short := strings.CutPrefix(key, perContainer); {
		case key == contract.DependsOn:
			found, err = longForm(annotations[key], decode)
		case short:
			found, err = shortForm(key, to, annotations[key])
		default:
			continue
		}
		errs = append(errs, err)
		for _, e := range found {
			if seen[e.Ends()] {
				errs = append(errs, &Error{key, e.To, fmt.Sprintf("waits for %s twice; keep one of the two", e.From)})
				continue
			}
			seen[e.Ends()] = true
			edges = append(edges, e)
		}
	}
	return edges, errors.Join(errs...)
}

func longForm(text string, decode func(string, any) error) ([]startup.Edge, error) {
	var graph map[string]map[string]json.RawMessage
	if err := decode(text, &graph); err != nil {
		return nil, &Error{contract.DependsOn, "", fmt.Sprintf("want CONTAINER: {DEPENDENCY: CONDITION}: %s", mismatch(nil, err))}
	}
	var edges []startup.Edge
	var errs []error
	for _, to := range slices.Sorted(maps.Keys(graph)) {
		for _, from := range slices.Sorted(maps.Keys(graph[to])) {
			e, err := longEdge(to, from, graph[to][from])
			if err != nil {
				errs = append(errs, &Error{contract.DependsOn, to, err.Error()})
				continue
			}
			edges = append(edges, e)
		}
	}
	return edges, errors.Join(errs...)
}

// A dependency holds the options of an edge in the long form.
type dependency struct {
	By        string `json:"by,omitempty"`
	Condition string `json:"condition"`
	OnRestart string `json:"on-restart,omitempty"`
	OnTimeout string `json:"on-timeout,omitempty"`
	Required  *bool  `json:"required,omitempty"`
	Timeout   string `json:"timeout,omitempty"`
}

// longEdge reads an edge in the long form: either a condition alone or a [dependency].
func longEdge(to, from string, text []byte) (startup.Edge, error) {
	var d dependency
	if json.Unmarshal(text, &d.Condition) != nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&d); err != nil {
			return startup.Edge{}, fmt.Errorf("%s: %s; want a condition, or condition, required, timeout, on-timeout, on-restart, by", from, mismatch(text, err))
		}
	}
	var wrong []string
	if d.Condition == "" {
		wrong = append(wrong, from+" has no condition; want one of started, healthy, completed")
	}
	if d.OnTimeout != "" && d.Timeout == "" {
		wrong = append(wrong, from+": on-timeout without a timeout; add timeout: 20s, for example")
	}
	all := ""
	if d.Required != nil && !*d.Required {
		all = ", optional"
	}
	for _, o := range []struct{ before, clause, value string }{
		{"", ", within ", d.Timeout}, {", within 1s", " or ", d.OnTimeout}, {"", ", on restart ", d.OnRestart}, {"", ", by ", d.By},
	} {
		if o.value == "" {
			continue
		}
		if err := oneWord(o.value); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", from, err))
		} else if _, err := statementEdge(to, from, string(startup.Healthy), o.before+o.clause+o.value); err != nil {
			wrong = append(wrong, err.Error())
		}
		all += o.clause + o.value
	}
	if len(wrong) > 0 {
		return startup.Edge{}, errors.New(strings.Join(wrong, "; "))
	}
	return statementEdge(to, from, d.Condition, all)
}

// mismatch translates an error of the JSON decoder into a message about the annotation.
func mismatch(text []byte, err error) string {
	m := decodeerror.Find(text, err)
	switch {
	case m == nil:
		return decodeerror.Reason(err)
	case m.Field == "":
		return m.Error()
	}
	return m.Field + " " + m.Error()
}

// statementEdge builds an edge with the parser of plans. So the valid words are defined in one place.
func statementEdge(to, from, condition, rest string) (startup.Edge, error) {
	for _, w := range []string{to, from, condition} {
		if err := oneWord(w); err != nil {
			return startup.Edge{}, err
		}
	}
	e, err := startup.ParseEdge(to + " after " + from + " is " + condition + rest)
	if err != nil {
		return startup.Edge{}, fmt.Errorf("%s: %w", from, err)
	}
	return e, nil
}

func oneWord(s string) error {
	if s == "" || strings.ContainsAny(s, ", #\n\r\t\v\f\u0085\u00a0") || len(strings.Fields(s)) != 1 || strings.Fields(s)[0] != s {
		return fmt.Errorf("%q is not one word", s)
	}
	return nil
}

// shortForm reads the short form, such as "outrider-proxy, migrate=completed". The default condition is healthy.
func shortForm(key, to, text string) ([]startup.Edge, error) {
	var edges []startup.Edge
	var errs []error
	for item := range strings.SplitSeq(text, ",") {
		from, condition, given := strings.Cut(strings.TrimSpace(item), "=")
		if !given {
			condition = string(startup.Healthy)
		}
		e, err := statementEdge(to, strings.TrimSpace(from), strings.TrimSpace(condition), "")
		if err != nil {
			meant := ""
			if name, condition, colon := strings.Cut(from, ":"); colon && !given {
				meant = fmt.Sprintf("; did you mean %s=%s?", strings.TrimSpace(name), strings.TrimSpace(condition))
			}
			errs = append(errs, &Error{key, to, err.Error() + "; want DEPENDENCY or DEPENDENCY=CONDITION, with commas between" + meant})
			continue
		}
		edges = append(edges, e)
	}
	return edges, errors.Join(errs...)
}

// FormatEdges returns the value of [contract.DependsOn] that requests these edges.
func FormatEdges(edges []startup.Edge) string {
	graph := map[string]map[string]any{}
	for _, e := range edges {
		if graph[e.To] == nil {
			graph[e.To] = map[string]any{}
		}
		d := dependency{Condition: string(e.After), OnRestart: string(e.OnRestart), By: string(e.By)}
		if e.Optional {
			d.Required = new(bool)
		}
		if e.Timeout > 0 {
			d.Timeout, d.OnTimeout = e.Timeout.String(), string(e.OnTimeout)
		}
		graph[e.To][e.From] = d
		if d == (dependency{Condition: d.Condition}) {
			graph[e.To][e.From] = d.Condition
		}
	}
	var b strings.Builder
	for _, to := range slices.Sorted(maps.Keys(graph)) {
		line, err := json.Marshal(graph[to])
		if err != nil {
			return "" // cannot fail: the values are strings and a bool
		}
		fmt.Fprintf(&b, "%q: %s\n", to, line)
	}
	return b.String()
}

// Off is a value of the annotation outrider.dev/start: the pod gets no order.
const Off startup.Mechanism = "off"

// Start returns the value of the annotation outrider.dev/start: the mechanism for edges that name none, [Off], or
// an empty string. The error is an [*Error].
func Start(annotations map[string]string) (startup.Mechanism, error) {
	by := startup.Mechanism(annotations[contract.Start])
	if by == "" || by == Off || by != startup.InitDone && slices.Contains(startup.Preferred, by) {
		return by, nil
	}
	return "", &Error{contract.Start, "", fmt.Sprintf("%q is none of gate, native, hold, off", by)}
}
