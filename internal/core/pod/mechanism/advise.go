package mechanism

import (
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/startcost"
	"outrider.dev/startup"
)

// An Advice compares the possible mechanisms for one edge.
type Advice struct {
	Edge     startup.Edge `json:"edge"`               // By is the choice of [Choose]; empty if no mechanism can be used
	Supposed bool         `json:"supposed,omitempty"` // the edge is not requested: Advise assumes that the app should wait for its proxy
	Ways     []Way        `json:"ways"`
}

// A Way is a mechanism for the edge. Health is the report that lets the dependent container start in this pod.
// Cost is the measured delay.
type Way struct {
	By     startup.Mechanism `json:"by"`
	ByNode bool              `json:"byNode,omitempty"` // the node adds the gate, which can wrap any command
	Health startup.Health    `json:"releasedBy,omitempty"`
	Fits   bool              `json:"fits"`
	Chosen bool              `json:"chosen"`
	WhyNot string            `json:"whyNot,omitempty"`
	Start  string            `json:"keepsStart"`
	Stop   bool              `json:"keepsStop"`
	Limits []startup.Limit   `json:"limits,omitempty"`
	Cost   *startcost.Delay  `json:"readyToStartSeconds,omitempty"` // nil if it was not measured
}

// A way is a mechanism with the health report that lets the dependent container start.
type way struct {
	by       startup.Mechanism
	released startup.Health
	byNode   bool
}

// ways lists the mechanisms that Advise compares.
var ways = []way{
	{by: startup.Gate},
	{by: startup.Gate, byNode: true},
	{by: startup.Native, released: startup.PostStart},
	{by: startup.Native, released: startup.StartupProbe},
	{by: startup.Hold, released: startup.PostStart},
}

// Advise compares the mechanisms for each edge, except for those that the order of init containers already keeps.
// If no other edge exists, Advise assumes that all containers wait for the proxy, which injection may not have
// added yet.
func Advise(r podstart.Reading, on startup.Kubernetes) []Advice {
	var out []Advice
	for _, c := range Choose(r, on) {
		if c.Edge.By != startup.InitDone {
			out = append(out, advice(r, c.Edge, on))
		}
	}
	if len(out) > 0 {
		return out
	}
	proxy := contract.ProxyContainer
	for _, c := range r.Containers {
		if r.Facts[c.Name].Proxy {
			proxy = c.Name
		}
	}
	if _, has := r.Facts[proxy]; !has {
		r = r.Expecting(proxy)
	}
	for _, c := range r.Containers {
		if c.Kind == startup.Plain && c.Name != proxy {
			e := startup.Edge{From: proxy, To: c.Name, After: startup.Healthy}
			a := advice(r, newChooser(r, r.ContainerPlan(), on).choose(e).Edge, on)
			a.Supposed = true
			out = append(out, a)
		}
	}
	return out
}

func advice(r podstart.Reading, e startup.Edge, on startup.Kubernetes) Advice {
	a := Advice{Edge: e}
	add := func(o Option, w way, cost *startcost.Delay) {
		a.Ways = append(a.Ways, Way{By: o.By, ByNode: w.byNode, Health: w.released, Fits: o.Answer.Can(), WhyNot: o.WhyNot(), Start: o.Answer.Start.String(), Stop: o.Answer.Stop, Limits: o.Answer.Limits, Cost: cost})
	}
	plan := r.ContainerPlan()
	for _, w := range ways {
		if w.by == startup.Gate && r.Node && !w.byNode {
			continue // the nodes add the gates, so a gate in the pod is no alternative
		}
		one := startup.Plan{Containers: slices.Clone(plan.Containers)}
		if _, i := one.Find(e.From); i >= 0 && w.released != "" && r.Facts[e.From].Probed {
			one.Containers[i].Health = w.released
		}
		plain := e
		plain.By = ""
		of := r
		of.Node = w.byNode
		add(newChooser(of, one, on).option(plain, w.by), w, startcost.DelayOf(w.by, w.released, on))
	}
	if _, i := plan.Find(e.From); i >= 0 && !slices.Contains(startup.Preferred, e.By) && e.By != "" {
		add(Option{By: e.By, Answer: e.By.Keeps(plan, e, on)}, way{}, nil)
	}
	if i := slices.IndexFunc(a.Ways, func(w Way) bool { return w.By == e.By && w.Fits && (!w.ByNode || r.Node) }); i >= 0 {
		a.Ways[i].Chosen = true
	}
	return a
}
