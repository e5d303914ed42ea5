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
	Edge    *Edge    `json:"edge,omitempty"` // the edge concerned, if there is one
	Message string   `json:"message"`
	Remedy  string   `json:"remedy,omitempty"`
}

// Level is the severity of a finding.
type Level string

const (
	Error   Level = "error"   // the plan cannot work
	Warning Level = "warning" // it works, but not as one may think
	Note    Level = "note"
)

// Code names a kind of finding. Codes are stable: a user may switch one off.
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

// Unwrap lets errors.As find the *CycleError of a finding that reports a cycle.
func (f *Finding) Unwrap() error {
	if f.Code == Cycle {
		return &CycleError{Path: f.Names}
	}
	return nil
}

// Findings is the result of [Plan.Validate].
type Findings []Finding

// Err joins the findings that are errors; nil if there is none.
func (fs Findings) Err() error {
	var errs []error
	for _, f := range fs {
		if f.Level == Error {
			errs = append(errs, &f)
		}
	}
	return errors.Join(errs...)
}

// Validate reports what in p cannot work, or works differently than it seems, on a kubelet of that version.
// It reports on the containers first, then on the edges in their order, then on the graph.
func (p Plan) Validate(on Kubernetes) Findings {
	v := validator{plan: p, on: on.orNewest(), judge: p.Judge(on)}
	v.containers()
	v.edges()
	if v.found.Err() == nil { // a graph with unknown names would say nothing
		v.graph()
	}
	return v.found
}

type validator struct {
	plan    Plan
	on      Kubernetes
	judge   *Judge
	names   []string // of all containers; nil: not needed yet
	guesses int      // how often a likely name for an unknown one was searched for
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
		// A dependency must exist unless the edge is optional.
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

// maxGuesses limits how often a likely name for an unknown one is searched for, since each search compares
// it with all containers. A person corrects the first few names and runs the check again.
const maxGuesses = 20

// known adds a finding if the pod has no such container.
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

// words adds a finding for each unknown word that is not empty.
func (v *validator) words(name string, e *Edge, unknown ...string) {
	for _, reason := range unknown {
		if reason != "" {
			v.add(Finding{Code: UnsupportedValue, Level: Error, Names: []string{name}, Edge: e, Message: name + ": " + reason})
		}
	}
}

// unknown returns the message for a value that is none of the words; empty for a valid value.
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
