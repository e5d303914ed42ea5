package startup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Finding is a problem in a plan, or a hint about it.
type Finding struct {
	Code    Code     `json:"code"`
	Level   Level    `json:"level"`
	Names   []string `json:"names"`          // the containers concerned; for a cycle, the path
	Edge    *Edge    `json:"edge,omitempty"` // the edge concerned; nil if there is none
	Message string   `json:"message"`
	Remedy  string   `json:"remedy,omitempty"`
}

// Level is the severity of a finding.
type Level string

const (
	Error   Level = "error"   // the plan cannot work
	Warning Level = "warning" // the plan works, but perhaps not as intended
	Note    Level = "note"
)

// Code identifies a kind of finding. Codes are stable, because users may disable single ones.
type Code string

const (
	InvalidName         Code = "invalid-name"
	DuplicateName       Code = "duplicate-name"
	DuplicateEdge       Code = "duplicate-edge"
	UnknownContainer    Code = "unknown-container"
	UnsupportedValue    Code = "unsupported-value"
	InvalidTimeout      Code = "invalid-timeout"
	Cycle               Code = "cycle"
	ProbeCycle          Code = "probe-cycle"
	UnsatisfiableEdge   Code = "unsatisfiable-edge"
	NeverHealthy        Code = "never-healthy"
	NeverCompletes      Code = "never-completes"
	UnsuitableMechanism Code = "unsuitable-mechanism"
	NotEveryStart       Code = "not-every-start"
	WildcardIncomplete  Code = "wildcard-incomplete"
)

func (f *Finding) Error() string { return f.Message }

// Unwrap returns a [*CycleError] if the finding reports a cycle, else nil.
func (f *Finding) Unwrap() error {
	if f.Code == Cycle {
		return &CycleError{Path: f.Names}
	}
	return nil
}

// Findings lists the problems and hints that [Plan.Validate] found.
type Findings []Finding

// Err returns an error that joins the findings with the level [Error]; nil if there are none.
func (fs Findings) Err() error {
	var errs []error
	for _, f := range fs {
		if f.Level == Error {
			errs = append(errs, &f)
		}
	}
	return errors.Join(errs...)
}

// Validate returns the problems of p on a kubelet of that version: what cannot work, and what works in another
// way than it seems. Findings about containers come first, then findings about single edges in their order, then
// findings about the graph.
func (p Plan) Validate(on Kubernetes) Findings {
	v := validator{plan: p, on: on.orNewest(), judge: p.Judge(on)}
	v.containers()
	v.edges()
	if v.found.Err() == nil { // with unknown names, findings about the graph would be misleading
		v.graph()
	}
	return v.found
}

type validator struct {
	plan    Plan
	on      Kubernetes
	judge   *Judge
	names   []string // names of all containers; nil until they are needed
	guesses int      // number of suggestions made for unknown names
	found   Findings
}

func (v *validator) add(f Finding) { v.found = append(v.found, f) }

func (v *validator) containers() {
	for i, c := range v.plan.Containers {
		if err := checkName(c.Name); err != nil {
			v.add(Finding{Code: InvalidName, Level: Error, Names: []string{c.Name}, Message: err.Error()})
		}
		if _, first := v.judge.Find(c.Name); first != i {
			v.add(Finding{Code: DuplicateName, Level: Error, Names: []string{c.Name},
				Message: "two containers have the name " + quote(c.Name), Remedy: "rename one of them"})
		}
		v.words(c.Name, nil, unknown(kinds, c.Kind), unknown(restarts, c.Restart), unknown(healths, c.Health))
		for _, n := range c.HealthNeeds {
			v.known(n, nil, "the health of "+c.Name+" needs")
		}
	}
}

func (v *validator) edges() {
	seen := map[Ends]bool{}
	for i := range v.plan.Edges {
		e := &v.plan.Edges[i]
		v.words(e.To, e, unknown(conditions, e.After), unknown(onTimeouts, e.OnTimeout),
			unknown(onRestarts, e.OnRestart), e.unknownMechanism())
		if e.Timeout < 0 {
			v.add(Finding{Code: InvalidTimeout, Level: Error, Names: []string{e.To}, Edge: e,
				Message: fmt.Sprintf("%s waits for a negative time: %s", e.To, e.Timeout)})
		}
		if e.From == Everything && e.To == Everything {
			v.add(Finding{Code: Cycle, Level: Error, Names: []string{Everything, Everything}, Edge: e,
				Message: "everything waits for everything", Remedy: "name one of the two"})
			continue
		}
		// A dependency must be in the pod unless the edge is optional.
		if e.To != Everything {
			v.known(e.To, e, "an edge delays")
		}
		if e.From != Everything && !e.Optional {
			v.known(e.From, e, e.To+" waits for")
		}
		if seen[e.Ends()] {
			v.add(Finding{Code: DuplicateEdge, Level: Warning, Names: []string{e.To, e.From}, Edge: e,
				Message: fmt.Sprintf("%s waits for %s twice", e.To, e.From), Remedy: "keep the stricter one"})
		}
		seen[e.Ends()] = true
	}
}

// maxGuesses is the maximum number of suggestions for unknown names, because each of them requires a comparison
// with all names. A person corrects the first few names and then runs the check again.
const maxGuesses = 20

// known adds a finding if the pod has no container of that name.
func (v *validator) known(name string, e *Edge, subject string) {
	if _, i := v.judge.Find(name); i >= 0 {
		return
	}
	f := Finding{Code: UnknownContainer, Level: Error, Names: []string{name}, Edge: e,
		Message: fmt.Sprintf("%s a container that the pod does not have: %s", subject, quote(name))}
	if v.guesses++; v.guesses <= maxGuesses {
		if v.names == nil {
			for _, c := range v.plan.Containers {
				v.names = append(v.names, c.Name)
			}
		}
		f.Remedy = "containers here are " + strings.Join(v.names, ", ") + didYouMean(name, v.names)
	}
	v.add(f)
}

// words adds a finding for each reason that is not empty.
func (v *validator) words(name string, e *Edge, unknown ...string) {
	for _, reason := range unknown {
		if reason != "" {
			v.add(Finding{Code: UnsupportedValue, Level: Error, Names: []string{name}, Edge: e, Message: name + ": " + reason})
		}
	}
}

// unknown returns an error message if a value is not one of the words; empty if it is valid.
func unknown[T ~string](ws words[T], value T) string {
	if value == "" && ws.zero != "" || slices.Contains(ws.rest, value) {
		return ""
	}
	if err := set(&value, ws, string(value)); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%q is the default, whose value is the empty string", ws.zero)
}

func (e Edge) unknownMechanism() string {
	if e.By == "" {
		return ""
	}
	return unknown(mechanismWords, e.By)
}

func quote(name string) string { return `"` + name + `"` }
