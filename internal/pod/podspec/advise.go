package podspec

import (
	"slices"

	"outrider.dev/startup"
)

// An Advice compares the ways to keep one edge.
type Advice struct {
	Edge     startup.Edge // By is what [Choose] takes; empty if nothing fits
	Supposed bool         // not requested: the app should wait for its proxy
	Ways     []Way
}

// A Way is a mechanism with what releases the dependent, in this pod.
type Way struct {
	Option
	Cost *Cost // nil if it was not measured
}

// ways are what is compared.
var ways = []struct {
	by       startup.Mechanism
	released startup.Health
}{
	{startup.Gate, ""},
	{startup.Native, startup.PostStart},
	{startup.Native, startup.StartupProbe},
	{startup.Hold, startup.PostStart},
}

// Advise compares the ways to keep each edge that is more than the order of init
// containers. For a pod without any it supposes that all wait for the proxy,
// which injection may have yet to add.
func Advise(r Reading, on startup.Kubernetes) []Advice {
	var out []Advice
	for _, c := range Choose(r, on) {
		if c.Edge.By != startup.InitDone {
			out = append(out, r.advice(c.Edge, on))
		}
	}
	if len(out) > 0 {
		return out
	}
	proxy := OurProxy
	for _, c := range r.Containers {
		if r.Facts[c.Name].Proxy {
			proxy = c.Name
		}
	}
	if _, has := r.Facts[proxy]; !has {
		r = r.expecting(proxy)
	}
	for _, c := range r.Containers {
		if c.Kind == startup.Plain && c.Name != proxy {
			e := startup.Edge{From: proxy, To: c.Name, After: startup.Healthy}
			a := r.advice(e, on)
			a.Edge.By, a.Supposed = r.choose(r.plan(), e, on).Edge.By, true
			out = append(out, a)
		}
	}
	return out
}

// expecting is r with one more container that injection has yet to add.
func (r Reading) expecting(name string) Reading {
	facts := map[string]Fact{name: {Command: true, Proxy: true, Probed: true}}
	for n, f := range r.Facts {
		facts[n] = f
	}
	r.Facts, r.Expected = facts, append(slices.Clone(r.Expected), name)
	return r
}

func (r Reading) advice(e startup.Edge, on startup.Kubernetes) Advice {
	a := Advice{Edge: e}
	plan := r.plan()
	for _, w := range ways {
		one := startup.Plan{Containers: slices.Clone(plan.Containers)}
		if _, i := one.Find(e.From); i >= 0 && w.released != "" && r.Facts[e.From].Probed {
			one.Containers[i].Health = w.released
		}
		plain := e
		plain.By = ""
		o := r.Option(one, plain, w.by, on)
		o.Health = w.released
		a.Ways = append(a.Ways, Way{Option: o, Cost: costOf(w.by, w.released, on)})
	}
	if _, i := plan.Find(e.From); i >= 0 && !slices.Contains(startup.Preferred, e.By) && e.By != "" {
		a.Ways = append(a.Ways, Way{Option: Option{By: e.By, Answer: e.By.Keeps(plan, e, on)}})
	}
	return a
}
