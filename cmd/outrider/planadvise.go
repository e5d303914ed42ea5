package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// An adviceView compares the ways to keep one edge.
type adviceView struct {
	Edge     startup.Edge `json:"edge"`
	Supposed bool         `json:"supposed,omitempty"`
	Ways     []wayView    `json:"ways"`
}

type wayView struct {
	By     startup.Mechanism `json:"by"`
	Health startup.Health    `json:"releasedBy,omitempty"`
	Fits   bool              `json:"fits"`
	Chosen bool              `json:"chosen"`
	WhyNot string            `json:"whyNot,omitempty"`
	Start  string            `json:"keepsStart"`
	Stop   bool              `json:"keepsStop"`
	Limits []limitView       `json:"limits,omitempty"`
	Cost   *podspec.Cost     `json:"readyToStartSeconds,omitempty"`
}

func adviceOf(all []podspec.Advice) []adviceView {
	var out []adviceView
	for _, a := range all {
		v := adviceView{Edge: a.Edge, Supposed: a.Supposed}
		chosen := false
		for _, w := range a.Ways {
			one := wayView{By: w.By, Health: w.Health, Fits: w.Answer.Can(), WhyNot: w.WhyNot(), Start: w.Answer.Start.String(),
				Stop: w.Answer.Stop, Limits: limits(w.Answer), Cost: w.Cost}
			one.Chosen = !chosen && w.By == a.Edge.By && one.Fits
			chosen = chosen || one.Chosen
			v.Ways = append(v.Ways, one)
		}
		out = append(out, v)
	}
	return out
}

// name is the way in a few words.
func (w wayView) name() string {
	switch {
	case w.By == startup.Native && w.Health == startup.PostStart:
		return "native, blocking postStart"
	case w.By == startup.Native:
		return "native, startup probe"
	}
	return string(w.By)
}

func (w wayView) cost() string {
	if w.Cost == nil {
		return "not measured"
	}
	return fmt.Sprintf("%.2f / %.2f / %.2f", w.Cost.Min, w.Cost.Median, w.Cost.Max)
}

func (p *printer) advice(v planned) {
	for _, a := range v.Advice {
		bare := a.Edge
		bare.By = ""
		supposed := ""
		if a.Supposed {
			supposed = " (nobody asks for it yet)"
		}
		p.line("\n%s%s: the ways to keep it on Kubernetes %s\n", p.paint(bold, bare.String()), supposed, v.Kubernetes)
		p.ways(a)
	}
	if len(v.Advice) > 0 {
		p.costs(v)
	}
}

func (p *printer) ways(a adviceView) {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  \tWAY\tKEEPS\tAT STOP\tREADY TO START, s\tLIMITS")
	for _, w := range a.Ways {
		mark, stop := " ", "no order"
		if w.Chosen {
			mark = "*"
		}
		if w.Stop {
			stop = "in order"
		}
		if !w.Fits {
			fmt.Fprintf(t, "  %s\t%s\tdoes not fit\t-\t-\t%s\n", mark, w.name(), w.WhyNot)
			continue
		}
		var codes []string
		for _, l := range w.Limits {
			codes = append(codes, l.Code)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\n", mark, w.name(), w.Start, stop, w.cost(), cmp.Or(strings.Join(codes, ", "), "none"))
	}
	t.Flush()
	p.WriteString(b.String())
}

// costs says what the figures are.
func (p *printer) costs(v planned) {
	p.line("\n  * is what is chosen or in the pod. Figures are min / median / max from \"ready\" to \"app starts\",")
	costs := podspec.PodCostsOn(v.on)
	p.line("  %s (kubelet %s).\n", podspec.CostSource, costs[0].Kubelet)
	p.podCosts(`"applied" to "app runs"`, costs)
	p.podCosts(fmt.Sprintf(`"applied" to the first call answered, with Envoy (kubelet %s, n=20)`, podspec.MeshCosts[0].Kubelet), podspec.MeshCosts)
	p.line("  A gate needs the agent in the pod: one init container, or none with outrider.dev/init: none.")
}

func (p *printer) podCosts(fromTo string, costs []podspec.PodCost) {
	p.line("  From %s:", fromTo)
	for _, c := range costs {
		p.line("    %-32s %.2f / %.2f / %.2f s", c.What, c.Min, c.Median, c.Max)
	}
}
