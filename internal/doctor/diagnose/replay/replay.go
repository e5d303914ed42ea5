// Package replay simulates a pod's start in the model of the kubelet, as it was and with a remedy.
package replay

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/simulate"
	"outrider.dev/startup"
)

// An incident is a refused call of a pod's start.
type incident struct {
	*facts.Pod
	calls calls.Calls
	app   *evidence.Container
	call  calls.Call
}

// Of simulates the start of a pod, in which a call was refused, without and with the mechanism m. It returns nil if the
// simulation without the mechanism shows no refused call, because the model then does not reproduce the failure.
func Of(pod *facts.Pod, all calls.Calls, refused calls.Call, m startup.Mechanism) *result.Replay {
	s := incident{pod, all, pod.Container(refused.Container), refused}
	b, assumed := s.observed()
	if b == nil {
		return nil
	}
	r := &result.Replay{Mechanism: m, Assumed: assumed}
	plan := s.Order.Plan()
	for p, out := range map[*startup.Plan]*result.Replayed{&plan: &r.AsItWas, s.ordered(plan, m): &r.Remedied} { // in any order: each fills its own result
		if p == nil {
			return nil
		}
		o, err := simulate.Run(simulate.Scenario{Pod: simulate.PodOf(*p), Plan: *p, Behaviour: *b})
		if err != nil {
			return nil
		}
		*out = counted(o.Timeline, s.app.Name)
	}
	if r.AsItWas.Refused == 0 {
		return nil
	}
	return r
}

// counted returns what a simulation shows of an application.
func counted(t startup.Timeline, app string) (r result.Replayed) {
	for _, e := range t {
		switch {
		case e.Container != app:
		case e.What == startup.IsRefused:
			r.Refused++
		case e.What == startup.IsStarted:
			r.Runs, r.Restarts = e.At, e.Incarnation
		}
	}
	return r
}

// observed returns the behaviour that the pod showed at its first start, and the assumptions made for it. It returns
// nil if the start of the proxy is not known.
func (s incident) observed() (*simulate.Behaviour, []string) {
	proxy := s.Proxy.Run(0)
	if proxy == nil || !proxy.Started.Known() {
		return nil, nil
	}
	healthy, assumed := s.proxyTook(*proxy)
	out := &simulate.Behaviour{Containers: map[string]simulate.Container{s.Proxy.Name: {Healthy: healthy}}}
	for _, c := range s.Containers {
		r := c.Run(0)
		if c.Kind == startup.Init && r != nil {
			out.Containers[c.Name] = simulate.Container{Ends: []simulate.End{{After: between(r.Finished, r.Started)}}}
		}
	}
	var of simulate.Container
	if r := s.app.Run(0); r != nil {
		of.Image = between(r.Started, proxy.Started) // all time between the two starts counts as a pull of the image
	}
	call := simulate.Call{To: s.Proxy.Name}
	if r := s.app.Run(s.call.Run); r != nil {
		if call.After = between(s.call.At, r.Started); s.call.At.Error > time.Second { // the time of the call is not exact
			call.After = between(r.Finished, r.Started)
		}
		if r.Exit != nil && *r.Exit != 0 {
			call.Exits, call.Code = true, *r.Exit
		}
	}
	of.Calls = []simulate.Call{call}
	out.Containers[s.app.Name] = of
	if s.Object.Status.StartTime != nil {
		first := proxy.Started
		for _, c := range s.Containers {
			if r := c.Run(0); r != nil && r.Started.Known() && r.Started.At.Before(first.At) {
				first = r.Started
			}
		}
		out.Sandbox = max(first.At.Sub(s.Object.Status.StartTime.Time), 0)
	}
	return out, assumed
}

// proxyTook returns the time from the proxy's start until it was ready. If the evidence does not show it, proxyTook
// assumes that the proxy was ready after the last refused call, and returns that assumption too.
func (s incident) proxyTook(proxy evidence.Run) (time.Duration, []string) {
	if i := slices.IndexFunc(s.Serving, func(v facts.Service) bool { return v.Number == 0 && v.Ready.At.Known() }); i >= 0 {
		return between(s.Serving[i].Ready.At, proxy.Started), nil
	}
	last := s.call.At
	for _, other := range s.calls.By(s.app.Name, calls.Refused) {
		if other.At.At.After(last.At) {
			last = other.At
		}
	}
	took := max(last.Latest().Sub(proxy.Started.At), time.Second)
	return took, []string{fmt.Sprintf("%s was ready %s after its start: the last refused call was before that", s.Proxy.Name, took.Round(time.Second))}
}

// between returns the time from one instant to a later one. It is known only as a range, so the result is the middle
// of the range, or 0 if there is no known range.
func between(later, earlier evidence.Time) time.Duration {
	least, most, ok := later.Since(earlier)
	if !ok {
		return 0
	}
	return max((least+most)/2, 0)
}

// ordered returns the plan with an edge that makes the application wait for the proxy by mechanism m. It returns nil
// if the plan does not contain the proxy.
func (s incident) ordered(p startup.Plan, m startup.Mechanism) *startup.Plan {
	c, at := p.Find(s.Proxy.Name)
	if at < 0 {
		return nil
	}
	p.Containers = slices.Delete(slices.Clone(p.Containers), at, at+1)
	plain := slices.IndexFunc(p.Containers, func(c startup.Container) bool { return c.Kind == startup.Plain })
	to := max(plain, 0)
	switch m {
	case startup.Gate:
		c.Health, to = startup.Report, at
	case startup.Hold:
		c.Health, c.Kind = startup.PostStart, startup.Plain
	case startup.Native:
		c.Health, c.Kind, to = startup.StartupProbe, startup.Sidecar, s.afterMesh(p)
	}
	p.Containers = slices.Insert(p.Containers, to, c)
	p.Edges = append(slices.DeleteFunc(slices.Clone(p.Edges), func(e startup.Edge) bool {
		return e.From == c.Name && (e.To == s.app.Name || e.To == startup.Everything)
	}),
		startup.Edge{From: c.Name, To: s.app.Name, After: startup.Healthy, By: m})
	return &p
}

// afterMesh returns the index after the mesh's init containers, because the one that writes the capture rules must
// run before the proxy.
func (s incident) afterMesh(p startup.Plan) int {
	at := 0
	for i, c := range p.Containers {
		if c.Kind == startup.Init && knownproxy.OfMesh(c.Name) {
			at = i + 1
		}
	}
	return at
}
