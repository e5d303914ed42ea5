package localpod

import (
	"cmp"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// hiddenIn returns the containers whose process first waits, in a gate or in a loop of the container's own
// command. For the kubelet, such a container has started, although its real command has not.
func hiddenIn(p startup.Plan) map[string]bool {
	out := map[string]bool{}
	for _, e := range p.Edges {
		if e.By == startup.Gate || e.By.WaitsInside() {
			out[e.To] = true
		}
	}
	return out
}

// sources maps each container to the probe, hook or report that shows its health.
func sources(p startup.Plan, pod kubelet.Pod) map[string]startup.Health {
	out := map[string]startup.Health{}
	for _, c := range append(append([]kubelet.Container{}, pod.Init...), pod.Containers...) {
		planned, _ := p.Find(c.Name)
		out[c.Name] = planned.Health
		if planned.Health != startup.Report {
			continue
		}
		// For a container that reports its health itself, use a probe or hook all the same: it shows the health,
		// only a moment later.
		var shown startup.Health
		if c.Startup.Handler != kubelet.NoHandler && c.Startup.Handler != kubelet.Gate {
			shown = startup.StartupProbe
		}
		if c.PostStart != kubelet.NoHandler {
			shown = startup.PostStart
		}
		if c.Readiness.Handler != kubelet.NoHandler {
			shown = startup.ReadinessProbe
		}
		out[c.Name] = cmp.Or(shown, startup.Report)
	}
	return out
}

// healthOf returns whether an event shows that a container has become healthy or unhealthy.
func (p *Pod) healthOf(before kubelet.State, e kubelet.Event) (startup.What, bool) {
	if p.reportsHealth[e.Container] {
		return "", false // its health comes from its journal
	}
	was, is := before.View(e.Container), p.state.View(e.Container)
	switch source := p.sources[e.Container]; {
	case source == startup.StartupProbe && e.Kind == kubelet.ProbeAnswered && e.Which == kubelet.Startup && !was.Started && is.Started, // !was.Started: a late answer of a probe must not report health a second time
		source == startup.PostStart && e.Kind == kubelet.HookReturned && e.Which == kubelet.PostStart && e.OK,
		source == startup.ReadinessProbe && e.Kind == kubelet.ProbeAnswered && !was.Ready && is.Ready:
		return startup.IsHealthy, is.Running
	case source == startup.ReadinessProbe && e.Kind == kubelet.ProbeAnswered && was.Ready && !is.Ready:
		return startup.IsUnhealthy, is.Running
	}
	return "", false
}
