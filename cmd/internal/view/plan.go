package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/pod/plan"
	"outrider.dev/startup"
)

// PlanOutputs lists the formats of [Plans]; the first is the default.
var PlanOutputs = []string{"text", "json", "yaml", "dot", "svg"}

// Plans prints the plans of pods.
func Plans(w io.Writer, t cli.Terminal, output string, all []plan.Report) error {
	switch output {
	case "json":
		return cli.WriteJSON(w, all)
	case "yaml":
		text, err := yaml.Marshal(all)
		if err != nil {
			return &cli.UsageError{Err: fmt.Errorf("--output=yaml: %w", err), Hint: "-o json writes every text"}
		}
		_, err = w.Write(text)
		return err
	case "dot":
		_, err := io.WriteString(w, planDot(all))
		return err
	case "svg":
		_, err := io.WriteString(w, planSVG(all))
		return err
	}
	p := &printer{Terminal: t}
	each(p, all, p.plan)
	return p.print(w)
}

func (p *printer) plan(r plan.Report) {
	p.title(r.Object, r.Kubernetes)
	p.line("")
	p.tree(r)
	for _, group := range grouped(r.Edges) {
		p.line("")
		p.edges(group)
	}
	if len(r.Edges) == 0 {
		p.line("\nNo container waits for another: the kubelet starts them one after the other, without\nwaiting until one is ready.")
	}
	p.findings(r)
	p.advice(r)
}

// tree prints the order of starts as a tree. Each container appears once, below the last container for which it
// waits. The line of a container names the other containers for which it waits.
func (p *printer) tree(r plan.Report) {
	order := r.Order()
	place := map[string]int{}
	for i, c := range order {
		place[c.Name] = i
	}
	after := map[string][]string{}
	for _, e := range r.Essential() {
		if _, ok := place[e.From]; ok && place[e.From] < place[e.To] {
			after[e.To] = append(after[e.To], e.From)
		}
	}
	children := map[string][]startup.Container{}
	for _, c := range order {
		parent := ""
		if on := after[c.Name]; len(on) > 0 {
			slices.SortFunc(on, func(a, b string) int { return place[b] - place[a] })
			parent = on[0]
		}
		children[parent] = append(children[parent], c)
	}
	column := 0
	var measure func(of string, depth int)
	measure = func(of string, depth int) {
		for _, c := range children[of] {
			column = max(column, 3*depth+len(c.Name))
			measure(c.Name, depth+1)
		}
	}
	measure("", 0)
	var walk func(of, before string)
	walk = func(of, before string) {
		for i, c := range children[of] {
			branch, below := "├─ ", "│  "
			if i == len(children[of])-1 {
				branch, below = "└─ ", "   "
			}
			if of == "" {
				branch, below = "", ""
			}
			pad := column - utf8.RuneCountInString(before+branch) - len(c.Name)
			text := r.Describe(c)
			if on := after[c.Name]; len(on) > 1 {
				text += "; waits for " + strings.Join(on[1:], ", ") + " too"
			}
			p.line("%s%s%s  %s", p.paint(faint, before+branch), p.paint(bold, c.Name), strings.Repeat(" ", max(0, pad)), text)
			walk(c.Name, before+below)
		}
	}
	walk("", "")
}

// grouped groups edges that differ only in the container that waits.
func grouped(edges []plan.Edge) [][]plan.Edge {
	var out [][]plan.Edge
	index := map[string]int{}
	for _, e := range edges {
		k := e
		k.To = ""
		codes := ""
		for _, l := range e.Limits {
			codes += l.Code + " "
		}
		refused := ""
		for _, r := range e.Refused {
			refused += string(r.By) + renamed(r.Reason, e.To, "")
		}
		key := fmt.Sprint(k.Edge, k.Evidence, k.Replace, k.Why, k.Start, k.Stop, codes, refused)
		i, ok := index[key]
		if !ok {
			i = len(out)
			index[key], out = i, append(out, nil)
		}
		out[i] = append(out[i], e)
	}
	return out
}

// renamed replaces a container's name in a sentence by another name.
func renamed(sentence, name, other string) string {
	words := strings.Split(sentence, " ")
	for i, w := range words {
		if rest, ok := strings.CutPrefix(w, name); ok && strings.Trim(rest, ",:;.'s") == "" && !strings.HasPrefix(rest, "s") {
			words[i] = other + rest
		}
	}
	return strings.Join(words, " ")
}

// colours maps mechanisms to their colours in a terminal and in a picture. Green: the mechanism keeps the edge at
// every start; blue: at the first start; amber: it fails open or polls; red: it depends on a guess, or there is no
// mechanism.
var colours = map[startup.Mechanism]struct{ ansi, svg string }{
	startup.Gate: {green, "#1a7f37"}, startup.InitDone: {green, "#1a7f37"},
	startup.Native: {green, "#0969da"},
	startup.Hold:   {yellow, "#9a6700"}, startup.Wrapper: {yellow, "#9a6700"}, startup.HealthLoop: {yellow, "#9a6700"},
	startup.BoundedLoop: {red, "#cf222e"}, startup.PostStartProbe: {red, "#cf222e"}, startup.Sleep: {red, "#cf222e"}, "": {red, "#cf222e"},
}

func (p *printer) edges(group []plan.Edge) {
	e := group[0]
	var waiting []string
	for _, o := range group {
		waiting = append(waiting, o.To)
	}
	all := strings.Join(waiting, ", ")
	bare := e.Edge
	bare.By = ""
	p.line("%s", p.paint(bold, all+strings.TrimPrefix(bare.String(), e.To)))
	why := e.Why
	if e.By == "" && len(why) == 0 {
		why = []string{"no mechanism fits"}
	}
	p.item("mechanism", colours[e.By].ansi, or(e.By == "", "none", string(e.By)))
	p.item("why", "", strings.Join(why, "; "))
	if e.Evidence != "" {
		p.item("evidence", "", e.Evidence)
	}
	for _, r := range e.Refused {
		p.item("not "+string(r.By), faint, renamed(r.Reason, e.To, all))
	}
	if e.By != "" {
		p.item("keeps", "", keeps(e))
	}
	for i, l := range e.Limits {
		p.item(or(i == 0, "but", ""), "", fmt.Sprintf("%s [%s]", renamed(l.Reason, e.To, all), l.Code))
	}
	if e.Replace != "" {
		p.item("instead", "", "remove it, and annotate "+e.Replace)
	}
	if e.Warning != "" {
		p.item("warning", yellow, renamed(e.Warning, e.To, all))
	}
}

func keeps(e plan.Edge) string {
	switch {
	case e.Start == startup.Nowhere.String() && !e.Stop:
		return "nothing"
	case e.Stop:
		return e.Start + ", and the order when the pod stops"
	}
	return e.Start + ", and no order when the pod stops"
}

func (p *printer) findings(r plan.Report) {
	if len(r.Findings)+len(r.Notes) > 0 || r.Stronger != "" {
		p.line("")
	}
	of := map[startup.Level]string{startup.Error: red, startup.Warning: yellow}
	for _, f := range r.Findings {
		p.line("%s: %s", p.paint(of[f.Level], string(f.Level)), f.Message)
		if f.Remedy != "" {
			p.line("  %s", f.Remedy)
		}
	}
	for _, n := range r.Notes {
		p.line("note: %s", n)
	}
	if r.Stronger != "" {
		p.line("stronger: %s", r.Stronger)
	}
}
