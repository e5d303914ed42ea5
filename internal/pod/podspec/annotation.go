package podspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/manifest"
	"outrider.dev/startup"
)

// The annotations that ask for an order.
//
//	outrider.dev/depends-on: |
//	  app:  {outrider-proxy: healthy, migrate: completed, cache: {condition: healthy, timeout: 20s, on-timeout: continue}}
//	  "*":  {outrider-proxy: healthy}
//
// and, shorter, for one container:
//
//	outrider.dev/depends-on.app: outrider-proxy, migrate=completed
const (
	EdgesAnnotation = "outrider.dev/depends-on"
	perContainer    = EdgesAnnotation + "."
	StartAnnotation = "outrider.dev/start"
)

// An AnnotationError is an annotation that cannot be understood.
type AnnotationError struct {
	Key       string
	Container string // the one that waits, if that is known
	Reason    string
}

func (e *AnnotationError) Error() string {
	if e.Container == "" {
		return fmt.Sprintf("annotation %s: %s", e.Key, e.Reason)
	}
	return fmt.Sprintf("annotation %s: container %s: %s", e.Key, e.Container, e.Reason)
}

// IsEdges says whether an annotation of that name asks for an order.
func IsEdges(key string) bool {
	return key == EdgesAnnotation || strings.HasPrefix(key, perContainer)
}

// Edges reads what a pod's annotations ask for, in the order of the names. It
// checks words; whether the pod has the containers is for [startup.Plan.Validate].
func Edges(annotations map[string]string) ([]startup.Edge, error) {
	var edges []startup.Edge
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		var found []startup.Edge
		var err error
		switch to, short := strings.CutPrefix(key, perContainer); {
		case key == EdgesAnnotation:
			found, err = longForm(annotations[key])
		case short:
			found, err = shortForm(key, to, annotations[key])
		default:
			continue
		}
		errs = append(errs, err)
		for _, e := range found {
			if slices.ContainsFunc(edges, func(o startup.Edge) bool { return o.From == e.From && o.To == e.To }) {
				errs = append(errs, &AnnotationError{key, e.To, fmt.Sprintf("waits for %s twice; keep one of the two", e.From)})
				continue
			}
			edges = append(edges, e)
		}
	}
	return edges, errors.Join(errs...)
}

func longForm(text string) ([]startup.Edge, error) {
	var graph map[string]map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &graph); err != nil {
		return nil, &AnnotationError{EdgesAnnotation, "", fmt.Sprintf("want CONTAINER: {DEPENDENCY: CONDITION}: %v", manifest.Reason(err))}
	}
	var edges []startup.Edge
	var errs []error
	for _, to := range slices.Sorted(maps.Keys(graph)) {
		for _, from := range slices.Sorted(maps.Keys(graph[to])) {
			e, err := longEdge(to, from, graph[to][from])
			if err != nil {
				errs = append(errs, &AnnotationError{EdgesAnnotation, to, err.Error()})
				continue
			}
			edges = append(edges, e)
		}
	}
	return edges, errors.Join(errs...)
}

// options of a dependency in the long form, each with how it is said in the text
// of a plan.
var options = map[string]func(value string) string{
	"timeout":    func(v string) string { return ", within " + v },
	"on-timeout": func(v string) string { return " or " + v },
	"on-restart": func(v string) string { return ", on restart " + v },
	"by":         func(v string) string { return ", by " + v },
}

// optionOrder is the order in which the text of a plan wants them.
var optionOrder = []string{"timeout", "on-timeout", "on-restart", "by"}

func longEdge(to, from string, value any) (startup.Edge, error) {
	switch v := value.(type) {
	case string:
		return statementEdge(to, from, v, "")
	case map[string]any:
		return optionsEdge(to, from, v)
	case nil:
		return startup.Edge{}, fmt.Errorf("%s has no condition; want one of started, healthy, completed", from)
	}
	return startup.Edge{}, fmt.Errorf("%s: %v is no condition; want healthy, or {condition: healthy, timeout: 20s}", from, value)
}

func optionsEdge(to, from string, v map[string]any) (startup.Edge, error) {
	wrong := checkTypes(from, v)
	condition, _ := v["condition"].(string)
	rest := ""
	if required, isBool := v["required"].(bool); isBool && !required {
		rest = ", optional"
	}
	if condition == "" && v["condition"] == nil {
		wrong = append(wrong, from+" has no condition; want one of started, healthy, completed")
	}
	if v["on-timeout"] != nil && v["timeout"] == nil {
		wrong = append(wrong, from+": on-timeout without a timeout; add timeout: 20s, for example")
	}
	for _, key := range optionOrder {
		if text, ok := v[key].(string); ok {
			if err := checkOption(to, from, key, text); err != nil {
				wrong = append(wrong, err.Error())
			}
			rest += options[key](text)
		}
	}
	if len(wrong) > 0 {
		return startup.Edge{}, errors.New(strings.Join(wrong, "; "))
	}
	return statementEdge(to, from, condition, rest)
}

// checkTypes returns what is wrong with the names of options and the types of their values.
func checkTypes(from string, v map[string]any) []string {
	var wrong []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		_, isText := v[key].(string)
		_, isBool := v[key].(bool)
		switch {
		case key == "required" && !isBool:
			wrong = append(wrong, fmt.Sprintf("%s: required: %v is neither true nor false", from, v[key]))
		case key == "required":
		case options[key] == nil && key != "condition":
			wrong = append(wrong, fmt.Sprintf("%s: %q is none of condition, required, %s", from, key, strings.Join(optionOrder, ", ")))
		case !isText:
			wrong = append(wrong, fmt.Sprintf("%s: %s: %v is no text; a time is written like 20s", from, key, v[key]))
		}
	}
	return wrong
}

// checkOption checks the value of one option by itself, so that each wrong one is reported.
func checkOption(to, from, key, text string) error {
	if err := oneWord(text); err != nil {
		return fmt.Errorf("%s: %s: %w", from, key, err)
	}
	before := ""
	if key == "on-timeout" {
		before = options["timeout"]("1s")
	}
	_, err := statementEdge(to, from, string(startup.Healthy), before+options[key](text))
	return err
}

// statementEdge lets the parser of plans judge the words, so that there is one
// place that knows them.
func statementEdge(to, from, condition, rest string) (startup.Edge, error) {
	for _, w := range []string{to, from, condition} {
		if err := oneWord(w); err != nil {
			return startup.Edge{}, err
		}
	}
	p, err := startup.Parse(to + " after " + from + " is " + condition + rest)
	if err != nil {
		var syntax *startup.SyntaxError
		if errors.As(err, &syntax) {
			err = fmt.Errorf("%s: %s", from, syntax.Reason)
		}
		return startup.Edge{}, err
	}
	return p.Edges[0], nil
}

func oneWord(s string) error {
	if s == "" || strings.ContainsAny(s, ", #\n\r\t\v\f\u0085\u00a0") || len(strings.Fields(s)) != 1 || strings.Fields(s)[0] != s {
		return fmt.Errorf("%q is not one word", s)
	}
	return nil
}

// shortForm reads "outrider-proxy, migrate=completed": healthy if nothing else is said.
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
			errs = append(errs, &AnnotationError{key, to, err.Error() + "; want DEPENDENCY or DEPENDENCY=CONDITION, with commas between"})
			continue
		}
		edges = append(edges, e)
	}
	return edges, errors.Join(errs...)
}

// FormatEdges is the value of [EdgesAnnotation] for these edges.
func FormatEdges(edges []startup.Edge) string {
	graph := map[string]map[string]any{}
	for _, e := range edges {
		if graph[e.To] == nil {
			graph[e.To] = map[string]any{}
		}
		o := map[string]any{"condition": string(e.After)}
		set := func(key, value string) {
			if value != "" {
				o[key] = value
			}
		}
		if e.Optional {
			o["required"] = false
		}
		if e.Timeout > 0 {
			o["timeout"] = e.Timeout.String()
			set("on-timeout", string(e.OnTimeout))
		}
		set("on-restart", string(e.OnRestart))
		set("by", string(e.By))
		graph[e.To][e.From] = o
		if len(o) == 1 {
			graph[e.To][e.From] = string(e.After)
		}
	}
	var b strings.Builder
	for _, to := range slices.Sorted(maps.Keys(graph)) {
		line, err := json.Marshal(graph[to])
		if err != nil {
			return "" // strings and a bool
		}
		fmt.Fprintf(&b, "%q: %s\n", to, line)
	}
	return b.String()
}

// Start is the value of the annotation outrider.dev/start: a mechanism, or off.
type Start string

const (
	StartDefault Start = "" // [Choose] decides
	StartGate          = Start(startup.Gate)
	StartNative        = Start(startup.Native)
	StartHold          = Start(startup.Hold)
	StartOff     Start = "off"
)

// ParseStart reads the annotation outrider.dev/start. The error is an *AnnotationError.
func ParseStart(annotations map[string]string) (Start, error) {
	s := Start(annotations[StartAnnotation])
	if slices.Contains([]Start{StartDefault, StartGate, StartNative, StartHold, StartOff}, s) {
		return s, nil
	}
	return "", &AnnotationError{StartAnnotation, "", fmt.Sprintf("%q is none of gate, native, hold, off", s)}
}
