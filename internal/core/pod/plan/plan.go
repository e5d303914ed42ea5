// Package plan reports how the containers of an object in a manifest start: the edges, the mechanism for each
// edge with the guarantees that it does not give, and the errors.
//
// Package podspec reads the pod, and package mechanism chooses the mechanisms. "outrider plan -o json" prints a
// [Report].
package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/core/pod/podrun"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/internal/core/pod/validation"
	"outrider.dev/startup"
)

// A Report describes how the pod of one object starts.
type Report struct {
	podfile.Object
	Kubernetes string              `json:"kubernetes"`
	Containers []startup.Container `json:"containers"`
	Edges      []Edge              `json:"edges"`
	Expected   []string            `json:"expected,omitempty"` // containers for which others wait and which injection has not added yet
	Found      []podstart.Found    `json:"found,omitempty"`
	Findings   startup.Findings    `json:"findings,omitempty"`
	Notes      []string            `json:"notes,omitempty"`
	Advice     []mechanism.Advice  `json:"advice,omitempty"`
	Stronger   string              `json:"stronger,omitempty"` // a sentence about changes after which more edges would be kept at every start

	On startup.Kubernetes `json:"-"`
}

// An Edge is an edge with its mechanism and the mechanism's guarantees.
type Edge struct {
	startup.Edge
	Present  bool            `json:"present"` // the pod already keeps the edge
	Why      []string        `json:"why,omitempty"`
	Evidence string          `json:"evidence,omitempty"`
	Start    string          `json:"keepsStart"`
	Stop     bool            `json:"keepsStop"`
	Limits   []startup.Limit `json:"limits,omitempty"`
	Refused  []Refusal       `json:"refused,omitempty"`
	Warning  string          `json:"warning,omitempty"`
	Replace  string          `json:"replace,omitempty"` // an annotation that requests the same order in a way that gives more guarantees
}

// A Refusal is the reason why a mechanism was not chosen.
type Refusal struct {
	By     startup.Mechanism `json:"by"`
	Reason string            `json:"reason"`
}

// New returns the report on an object, on a given version of Kubernetes. Report.Advice is set only if advise is
// true. New fails if the pod is invalid.
func New(o podfile.Object, on startup.Kubernetes, advise bool) (Report, error) {
	if err := validation.Check(&o.Pod); err != nil {
		return Report{}, invalid(o, err)
	}
	r, err := podspec.Read(&o.Pod)
	if err != nil {
		return Report{}, fmt.Errorf("%s: %s: %w", Where(o), o.Field("metadata.annotations"), err)
	}
	plan := r.Plan()
	p := Report{Object: o, Kubernetes: fmt.Sprintf("1.%d", int(on)), Containers: plan.Containers,
		Expected: r.Expected, Notes: r.Notes, On: on, Edges: []Edge{}}
	choices := mechanism.Choose(r, on)
	pod := podrun.Lifecycle(&o.Pod)
	late := gates.OutlastGrace(asWritten(pod, plan, choices))
	for _, c := range choices {
		p.Edges = append(p.Edges, p.edge(r, c, pod, late))
	}
	for _, f := range r.Found {
		f.Evidence.Field = o.Field(f.Evidence.Field)
		p.Found = append(p.Found, f)
	}
	p.Findings, p.Stronger = p.findings(r, choices), mechanism.Stronger(r, choices, on)
	if waits := p.waitsForClients(); len(waits) > 0 {
		p.Notes = append(slices.Clip(p.Notes), fmt.Sprintf("at the stop %s gets SIGTERM when its clients have left the proxy: after terminationDrainDuration (5 s by default) at the latest, and half of the grace period (%s)",
			strings.Join(waits, ", "), pod.GracePeriod()/2))
	}
	p.Notes = append(slices.Clip(p.Notes), outlived(plan.Containers, pod)...)
	for _, k := range podspec.Keeps(&o.Pod) {
		if len(k.Unseen) > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("at the stop %s does not wait for %s: no gate reports the end, and the sockets of native sidecars hide it", k.Proxy, strings.Join(k.Unseen, ", ")))
		}
	}
	for _, sentence := range podrun.Unmodelled(&o.Pod) {
		p.Notes = append(slices.Clip(p.Notes), o.Field(sentence))
	}
	if slices.ContainsFunc(p.Findings, func(f startup.Finding) bool { return slices.Contains(unkeepable, f.Code) }) {
		for i := range p.Edges {
			p.Edges[i].Refused = nil
		}
	}
	if advise {
		p.Advice = mechanism.Advise(r, on)
	}
	return p, nil
}

// waitsForClients returns the containers whose gates hold SIGTERM back while clients call them through the proxy.
func (p Report) waitsForClients() (out []string) {
	for _, e := range p.Edges {
		if e.From == contract.ProxyContainer && e.By == startup.Gate && e.Stop {
			out = append(out, e.To)
		}
	}
	return out
}

// outlived returns a note for each container whose preStop hook waits for the sockets of others.
func outlived(all []startup.Container, pod kubelet.Pod) (notes []string) {
	for _, c := range all {
		if len(c.Outlives) == 0 {
			continue
		}
		note := fmt.Sprintf("at the stop %s gets SIGTERM when %s ended, as far as open sockets show, and after %s at the latest",
			c.Name, hasOrHave(c.Outlives), gates.StopLimit(pod))
		if !gates.OrderStops(pod) {
			note += ": raise terminationGracePeriodSeconds"
		}
		notes = append(notes, note)
	}
	return notes
}

func hasOrHave(names []string) string {
	if len(names) == 1 {
		return names[0] + " has"
	}
	return strings.Join(names, ", ") + " have"
}

// Where returns the file, the document and the name of an object, for the beginning of error messages.
func Where(o podfile.Object) string {
	return fmt.Sprintf("%s: document %d: %s", o.File, o.Document, o)
}

// unkeepable lists the findings because of which no mechanism can keep the plan. The reasons why single
// mechanisms cannot be used are then of no interest.
var unkeepable = []startup.Code{startup.Cycle, startup.UnknownContainer, startup.DuplicateName}

// invalid returns an error with the paths of the object's fields in place of the paths of the pod's fields.
func invalid(o podfile.Object, err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	var fields []error
	for _, err := range all {
		var field *validation.FieldError
		if errors.As(err, &field) {
			field.Field = o.Field(field.Field)
		}
		fields = append(fields, fmt.Errorf("%s: %w", Where(o), err))
	}
	return errors.Join(fields...)
}

// asWritten returns the pod in which regular containers have become sidecars as the choices require, and the
// plan with the mechanisms of the choices.
func asWritten(p kubelet.Pod, plan startup.Plan, choices []mechanism.Choice) (kubelet.Pod, startup.Plan) {
	plan.Edges = nil
	for _, c := range choices {
		plan.Edges = append(plan.Edges, c.Edge)
		i := slices.IndexFunc(p.Containers, func(k kubelet.Container) bool { return k.Name == c.Edge.From })
		if c.Present != nil || c.Edge.By != startup.Native || i < 0 {
			continue
		}
		sidecar := p.Containers[i]
		sidecar.Restart = kubelet.Always
		p.Init, p.Containers = append(slices.Clip(p.Init), sidecar), slices.Delete(slices.Clone(p.Containers), i, i+1)
	}
	return p, plan
}

func (p Report) edge(r podstart.Reading, c mechanism.Choice, pod kubelet.Pod, late map[string]bool) Edge {
	e := Edge{Edge: c.Edge, Why: c.Why, Start: c.Answer.Start.String(), Stop: c.Answer.Stop, Limits: c.Answer.Limits, Warning: c.Warning}
	if reason := tooShort(e.Edge, pod, late); e.Stop && reason != "" {
		e.Stop = false
		e.Limits = append(slices.Clip(e.Limits), startup.Limit{Code: "grace-too-short", Reason: reason + ": raise terminationGracePeriodSeconds"})
	}
	if c.Present != nil {
		e.Present = true
		e.Evidence = p.Field(c.Present.Evidence.Field) + ": " + c.Present.Evidence.Text
		if c.Present.Replaceable && c.Edge.By != startup.Gate {
			e.Replace = fmt.Sprintf("%s.%s: %s=%s", contract.DependsOn, c.Edge.To, c.Edge.From, r.Meant(c.Edge).After)
		}
	}
	for _, o := range c.Refused {
		e.Refused = append(e.Refused, Refusal{o.By, o.WhyNot()})
	}
	return e
}

// tooShort returns the reason why the grace period is too short for the order of stops of an edge; empty if it is not.
// late contains the containers whose stop certainly takes too long.
func tooShort(e startup.Edge, pod kubelet.Pod, late map[string]bool) string {
	from := slices.IndexFunc(pod.Init, func(c kubelet.Container) bool { return c.Name == e.From && c.Restart == kubelet.Always })
	switch byKubelet := from >= 0; {
	case e.After == startup.Completed:
	case late[e.To]:
		return "a preStop sleeps until less than 2 s of the grace period are left, after which the kubelet stops all containers at once"
	case byKubelet && !pod.OrdersStops():
		return "in a grace period of less than 2 s the kubelet stops all containers at once"
	case !byKubelet && !gates.OrderStops(pod):
		return fmt.Sprintf("%s is kept for %s of so short a grace period: the rest is for its own stop", e.From, gates.StopLimit(pod))
	}
	return ""
}

// findings returns the errors and warnings about the plan, and an error for each edge that no mechanism keeps.
func (p Report) findings(r podstart.Reading, choices []mechanism.Choice) startup.Findings {
	found := mechanism.Findings(r, choices, p.On)
	if found.Err() != nil || r.Start == request.Off {
		return found
	}
	for _, e := range p.Edges {
		if e.By == "" {
			found = append(found, unkept(r, e.Edge))
		}
	}
	return found
}

// unkept returns the error for an edge that no mechanism can keep.
func unkept(r podstart.Reading, e startup.Edge) startup.Finding {
	f := startup.Finding{Code: startup.UnsuitableMechanism, Level: startup.Error, Names: []string{e.To, e.From}, Edge: &e,
		Message: fmt.Sprintf("no mechanism keeps %q", e)}
	if r.Excluded != "" {
		f.Remedy = "let the pod be injected: " + r.Excluded
	}
	for _, name := range []string{e.To, e.From} {
		if !r.Facts[name].Command && f.Remedy == "" {
			f.Remedy = fmt.Sprintf("write the command of %s into the pod spec, so that a gate can wrap it", name)
		}
	}
	return f
}

// tolerable lists findings about a plan that may not work but can be run. The simulator, the verifier and
// "outrider run" show what happens in that case.
var tolerable = []startup.Code{startup.UnsuitableMechanism, startup.UnsatisfiableEdge, startup.NeverHealthy, startup.NeverCompletes, startup.ProbeCycle}

// CheckRunnable returns an error if an object cannot be run. Edges that are not kept are no error.
func CheckRunnable(o podfile.Object, on startup.Kubernetes) error {
	p, err := New(o, on, false)
	if err != nil {
		return err
	}
	p.Findings = slices.DeleteFunc(p.Findings, func(f startup.Finding) bool { return slices.Contains(tolerable, f.Code) })
	return p.Err()
}

// Err returns the first error among the findings; nil if there is none.
func (p Report) Err() error {
	for _, f := range p.Findings {
		if f.Level == startup.Error {
			return &Error{Where(p.Object) + ": " + f.Message, f.Remedy}
		}
	}
	return nil
}

// An Error reports a plan that cannot work. Remedy tells the user how to repair it; it may be empty.
type Error struct{ Message, Remedy string }

func (e *Error) Error() string { return e.Message }

// Hint returns Remedy. Commands print it after the error.
func (e *Error) Hint() string { return e.Remedy }

// Describe returns a short description of a container.
func (p Report) Describe(c startup.Container) string {
	s := strings.TrimPrefix(c.String(), "container "+c.Name+" is ")
	if slices.Contains(p.Expected, c.Name) { // injection decides its kind
		s = strings.TrimPrefix(s, "plain, ") + ", added by injection"
	}
	return s
}

// Essential returns the edges for a picture of the plan. It leaves out edges of the pod's list order that follow
// from other edges.
func (p Report) Essential() []Edge {
	plan := startup.Plan{Containers: p.Containers}
	waiting := map[string][]string{}
	for _, e := range p.Edges {
		plan.Edges = append(plan.Edges, e.Edge)
		waiting[e.From] = append(waiting[e.From], e.To)
	}
	d := plan.Dependency()
	var out []Edge
	for _, e := range p.Edges {
		implied := e.Present && (e.By == startup.InitDone || e.By == startup.Native)
		indirect := func(over string) bool { return over != e.To && d.Needs(e.To, over) }
		if !implied || !slices.ContainsFunc(waiting[e.From], indirect) {
			out = append(out, e)
		}
	}
	return out
}

// Order returns the containers in the order of their start, or in the pod's order if the plan has a cycle.
func (p Report) Order() []startup.Container {
	plan := startup.Plan{Containers: p.Containers}
	for _, e := range p.Edges {
		plan.Edges = append(plan.Edges, e.Edge)
	}
	names, err := plan.StartOrder()
	if err != nil {
		return p.Containers
	}
	var out []startup.Container
	for _, n := range names {
		c, _ := plan.Find(n)
		out = append(out, c)
	}
	return out
}
