package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// A planned is the plan of one object, as it is printed.
type planned struct {
	podspec.Object
	Kubernetes string              `json:"kubernetes"`
	Containers []startup.Container `json:"containers"`
	Edges      []edgeView          `json:"edges"`
	Expected   []string            `json:"expected,omitempty"` // containers that injection has yet to add
	Found      []podspec.Found     `json:"found,omitempty"`
	Findings   startup.Findings    `json:"findings,omitempty"`
	Notes      []string            `json:"notes,omitempty"`
	Advice     []adviceView        `json:"advice,omitempty"`
	on         startup.Kubernetes
}

// An edgeView is an edge with how it is kept.
type edgeView struct {
	startup.Edge
	Present  bool        `json:"present"` // in the pod already
	Why      []string    `json:"why,omitempty"`
	Evidence string      `json:"evidence,omitempty"`
	Start    string      `json:"keepsStart"`
	Stop     bool        `json:"keepsStop"`
	Limits   []limitView `json:"limits,omitempty"`
	Refused  []refusal   `json:"refused,omitempty"`
	Warning  string      `json:"warning,omitempty"`
	Replace  string      `json:"replace,omitempty"` // what would ask for the same, and keep it better
}

type limitView struct {
	Code   string `json:"code"`
	Reason string `json:"reason"`
	Source string `json:"source,omitempty"`
}

type refusal struct {
	By     startup.Mechanism `json:"by"`
	Reason string            `json:"reason"`
}

func newPlanned(o podspec.Object, on startup.Kubernetes, advise bool) (planned, error) {
	if err := podspec.Check(&o.Pod); err != nil {
		return planned{}, refused(o, err)
	}
	r, err := podspec.Read(&o.Pod)
	if err != nil {
		return planned{}, fmt.Errorf("%s: document %d: %s: %s: %w", o.File, o.Document, o, o.Field("metadata.annotations"), err)
	}
	plan := r.Plan()
	p := planned{Object: o, Kubernetes: fmt.Sprintf("1.%d", int(on)), Containers: plan.Containers,
		Expected: r.Expected, Notes: r.Notes, on: on, Edges: []edgeView{}}
	for _, c := range podspec.Choose(r, on) {
		p.Edges = append(p.Edges, p.edge(r, c))
	}
	for _, f := range r.Found {
		f.Evidence.Field = o.Field(f.Evidence.Field)
		p.Found = append(p.Found, f)
	}
	p.Findings = p.findings(r, plan)
	if slices.ContainsFunc(p.Findings, func(f startup.Finding) bool { return slices.Contains(senseless, f.Code) }) {
		for i := range p.Edges {
			p.Edges[i].Refused = nil
		}
	}
	if advise {
		p.Advice = adviceOf(podspec.Advise(r, on))
	}
	return p, nil
}

// senseless are findings after which it says nothing why a mechanism does not fit.
var senseless = []startup.Code{startup.Cycle, startup.UnknownName, startup.DuplicateName}

// refused are the fields of a pod that the API server would not take.
func refused(o podspec.Object, err error) error {
	var fields []error
	for _, err := range unjoined(err) {
		var field *podspec.FieldError
		if errors.As(err, &field) {
			field.Field = o.Field(field.Field)
		}
		fields = append(fields, fmt.Errorf("%s: document %d: %s: %w", o.File, o.Document, o, err))
	}
	return errors.Join(fields...)
}

// unjoined are the errors that one joins.
func unjoined(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func (p planned) edge(r podspec.Reading, c podspec.Choice) edgeView {
	v := edgeView{Edge: c.Edge, Why: c.Why, Start: c.Answer.Start.String(), Stop: c.Answer.Stop, Limits: limits(c.Answer), Warning: c.Warning}
	if c.Present != nil {
		v.Present = true
		v.Evidence = p.Field(c.Present.Evidence.Field) + ": " + c.Present.Evidence.Text
		if c.Present.Replaceable && c.Edge.By != startup.Gate {
			v.Replace = fmt.Sprintf("%s.%s: %s=%s", podspec.EdgesAnnotation, c.Edge.To, c.Edge.From, r.Meant(c.Edge).After)
		}
	}
	for _, o := range c.Refused {
		v.Refused = append(v.Refused, refusal{o.By, o.WhyNot()})
	}
	return v
}

func limits(a startup.Answer) []limitView {
	var out []limitView
	for _, l := range a.Limits {
		out = append(out, limitView{l.Code, l.Reason, l.Source})
	}
	return out
}

// findings are what is wrong with the plan, without what each edge says itself:
// how well it is kept, and that the pod has to be written anew for it.
func (p planned) findings(r podspec.Reading, plan startup.Plan) startup.Findings {
	for i := range r.Asked {
		plan.Edges[i].By = r.Asked[i].By // and not what it is kept by today
	}
	found := slices.DeleteFunc(plan.Validate(p.on), func(f startup.Finding) bool {
		switch f.Code {
		case startup.NotEveryStart:
			return true
		case startup.CannotBeKept, startup.MechanismUnfit:
			return p.willBeKept(f.Names[0], f.Names[1])
		}
		return false
	})
	if found.Err() != nil || r.Start == podspec.StartOff {
		return found
	}
	for _, e := range p.Edges {
		if e.By == "" {
			found = append(found, unkept(r, e.Edge))
		}
	}
	return found
}

// unkept is the finding of an edge that is possible, but for which no mechanism
// is to be had.
func unkept(r podspec.Reading, e startup.Edge) startup.Finding {
	f := startup.Finding{Code: startup.MechanismUnfit, Level: startup.Error, Names: []string{e.To, e.From}, Edge: &e,
		Message: fmt.Sprintf("no mechanism keeps %q", e)}
	for _, name := range []string{e.To, e.From} {
		if !r.Facts[name].Command && f.Remedy == "" {
			f.Remedy = fmt.Sprintf("write the command of %s into the pod spec, so that a gate can wrap it", name)
		}
	}
	return f
}

func (p planned) willBeKept(to, from string) bool {
	return slices.ContainsFunc(p.Edges, func(e edgeView) bool {
		return e.To == to && e.From == from && e.By != "" && !e.Present
	})
}

// container is a container in a few words.
func (p planned) container(c startup.Container) string {
	s := strings.TrimPrefix(c.String(), "container "+c.Name+" is ")
	if slices.Contains(p.Expected, c.Name) {
		s += ", added by injection"
	}
	return s
}

// shown are the edges that a picture needs: without those that only say again
// what a longer way along the pod's own lists says.
func (p planned) shown() []edgeView {
	var out []edgeView
	for _, e := range p.Edges {
		implied := e.Present && (e.By == startup.InitDone || e.By == startup.Native)
		if !implied || !p.longerWay(e.From, e.To) {
			out = append(out, e)
		}
	}
	return out
}

// longerWay says whether there is a way of two edges or more.
func (p planned) longerWay(from, to string) bool {
	seen := map[string]bool{}
	var walk func(at string, first bool) bool
	walk = func(at string, first bool) bool {
		if seen[at] {
			return false
		}
		seen[at] = true
		for _, e := range p.Edges {
			if e.From == at && (e.To == to && !first || e.To != to && walk(e.To, false)) {
				return true
			}
		}
		return false
	}
	return walk(from, true)
}

// order is the containers in the order of their start; the pod's own if they wait
// for one another.
func (p planned) order() []startup.Container {
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
