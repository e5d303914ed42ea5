package view

import (
	"cmp"
	"fmt"
	"strings"

	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/plan"
	"outrider.dev/internal/core/pod/startcost"
	"outrider.dev/startup"
)

// advice prints a comparison of the mechanisms for each edge, with their costs.
func (p *printer) advice(r plan.Report) {
	for _, a := range r.Advice {
		bare := a.Edge
		bare.By = ""
		p.line("\n%s%s: the ways to keep it on Kubernetes %s\n", p.paint(bold, bare.String()), or(a.Supposed, " (not in the pod yet)", ""), r.Kubernetes)
		p.ways(a)
	}
	if len(r.Advice) > 0 {
		p.costs(r)
	}
}

func (p *printer) ways(a mechanism.Advice) {
	rows := [][]string{{"  ", "WAY", "KEEPS", "AT STOP", "READY TO START, s", "LIMITS"}}
	for _, w := range a.Ways {
		mark := or(w.Chosen, "  *", "   ")
		if !w.Fits {
			rows = append(rows, []string{mark, wayName(w), "does not fit", "-", "-", w.WhyNot})
			continue
		}
		var codes []string
		for _, l := range w.Limits {
			codes = append(codes, l.Code)
		}
		cost := "not measured"
		if w.Cost != nil {
			cost = figures(w.Cost.Min, w.Cost.Median, w.Cost.Max)
		}
		rows = append(rows, []string{mark, wayName(w), w.Start, or(w.Stop, "in order", "no order"), cost, cmp.Or(strings.Join(codes, ", "), "none")})
	}
	_ = table(p, rows) // writing to a strings.Builder cannot fail
}

func wayName(w mechanism.Way) string {
	switch {
	case w.ByNode:
		return string(w.By) + ", by the node"
	case w.By == startup.Native && w.Health == startup.PostStart:
		return "native, blocking postStart"
	case w.By == startup.Native:
		return "native, startup probe"
	}
	return string(w.By)
}

func figures(least, median, most float64) string {
	return fmt.Sprintf("%.2f / %.2f / %.2f", least, median, most)
}

// costs prints an explanation of the figures, and the times of whole pods.
func (p *printer) costs(r plan.Report) {
	p.line("\n  * marks the mechanism that is chosen or in the pod. Figures are min / median / max from \"ready\" to \"app starts\",")
	costs, withEnvoy := startcost.On(startcost.Pods, r.On), startcost.On(startcost.MeshPods, r.On)
	p.line("  %s (kubelet %s).\n", startcost.Source, costs[0].Kubelet)
	p.podCosts(`"applied" to "app runs"`, costs)
	p.podCosts(fmt.Sprintf(`"applied" to the first call answered, with Envoy (kubelet %s, n=20)`, withEnvoy[0].Kubelet), withEnvoy)
	p.line("  A gate needs the agent in the pod: one init container, or none with outrider.dev/init: none or node (docs/node.md).")
}

func (p *printer) podCosts(fromTo string, costs []startcost.Pod) {
	p.line("  From %s:", fromTo)
	for _, c := range costs {
		p.line("    %-32s %s s", c.What, figures(c.Min, c.Median, c.Max))
	}
}
