package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"outrider.dev/startup"
)

// A printer writes plans as text, in colour if it is for a terminal.
type printer struct {
	strings.Builder
	colour bool
}

const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)

func (p *printer) paint(colour, s string) string {
	if !p.colour || colour == "" || s == "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

const width = 100

// item writes a labelled text, wrapped, under an edge.
func (p *printer) item(label, colour, text string) {
	const indent = 13
	at := indent
	fmt.Fprintf(p, "  %-10s ", label)
	for i, w := range strings.Fields(text) {
		n := utf8.RuneCountInString(w)
		switch {
		case i == 0:
		case at+1+n > width:
			p.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			p.WriteByte(' ')
			at++
		}
		p.WriteString(p.paint(colour, w))
		at += n
	}
	p.WriteByte('\n')
}

func (p *printer) plan(v planned) {
	p.line("%s", p.paint(bold, v.Object.String())+p.paint(faint, fmt.Sprintf("  %s, document %d, Kubernetes %s", v.File, v.Document, v.Kubernetes)))
	p.line("")
	p.tree(v)
	for _, group := range grouped(v.Edges) {
		p.line("")
		p.edges(group)
	}
	if len(v.Edges) == 0 {
		p.line("\nNobody waits for anybody: the kubelet starts the containers one after the other, without\nasking whether one is ready.")
	}
	p.findings(v)
	p.advice(v)
}

// tree writes the start graph: each container once, below the last one that it
// waits for, with the others behind it.
func (p *printer) tree(v planned) {
	order := v.order()
	place := map[string]int{}
	for i, c := range order {
		place[c.Name] = i
	}
	after := map[string][]string{}
	for _, e := range v.shown() {
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
			text := v.container(c)
			if on := after[c.Name]; len(on) > 1 {
				text += "; waits for " + strings.Join(on[1:], ", ") + " too"
			}
			p.line("%s%s%s  %s", p.paint(faint, before+branch), p.paint(bold, c.Name), strings.Repeat(" ", max(0, pad)), text)
			walk(c.Name, before+below)
		}
	}
	walk("", "")
}

// grouped puts edges together that differ in who waits only.
func grouped(edges []edgeView) [][]edgeView {
	var out [][]edgeView
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
			refused += string(r.By) + mentioning(r.Reason, e.To, "")
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

// mentioning is a sentence with another name in the place of one.
func mentioning(sentence, name, other string) string {
	words := strings.Split(sentence, " ")
	for i, w := range words {
		if rest, ok := strings.CutPrefix(w, name); ok && strings.Trim(rest, ",:;.'s") == "" && !strings.HasPrefix(rest, "s") {
			words[i] = other + rest
		}
	}
	return strings.Join(words, " ")
}

var mechanismColours = map[startup.Mechanism]string{
	startup.Gate: green, startup.InitDone: green, startup.Native: green, startup.Hold: yellow,
	startup.Wrapper: yellow, startup.HealthLoop: yellow, startup.BoundedLoop: red, startup.PostStartProbe: red, startup.Sleep: red, "": red,
}

func (p *printer) edges(group []edgeView) {
	e := group[0]
	var who []string
	for _, o := range group {
		who = append(who, o.To)
	}
	all := strings.Join(who, ", ")
	by := e.By
	bare := e.Edge
	bare.By = ""
	p.line("%s", p.paint(bold, all+strings.TrimPrefix(bare.String(), e.To)))
	name := string(by)
	if by == "" {
		name = "none"
	}
	p.item("mechanism", mechanismColours[by], name)
	p.item("why", "", strings.Join(append(slices.Clone(e.Why), e.nothing()...), "; "))
	if e.Evidence != "" {
		p.item("evidence", "", e.Evidence)
	}
	for _, r := range e.Refused {
		p.item("not "+string(r.By), faint, mentioning(r.Reason, e.To, all))
	}
	if by != "" {
		p.item("keeps", "", keeps(e))
	}
	for i, l := range e.Limits {
		label := ""
		if i == 0 {
			label = "but"
		}
		p.item(label, "", fmt.Sprintf("%s [%s]", mentioning(l.Reason, e.To, all), l.Code))
	}
	if e.Replace != "" {
		p.item("instead", "", "take it out, and annotate "+e.Replace)
	}
	if e.Warning != "" {
		p.item("warning", yellow, mentioning(e.Warning, e.To, all))
	}
}

// nothing is why there is no mechanism, if there is none and no other reason.
func (e edgeView) nothing() []string {
	if e.By == "" && len(e.Why) == 0 {
		return []string{"no mechanism fits"}
	}
	return nil
}

func keeps(e edgeView) string {
	switch {
	case e.Start == startup.Nowhere.String() && !e.Stop:
		return "nothing"
	case e.Stop:
		return e.Start + ", and the order when the pod stops"
	}
	return e.Start + ", and no order when the pod stops"
}

func (p *printer) findings(v planned) {
	if len(v.Findings)+len(v.Notes) > 0 {
		p.line("")
	}
	colours := map[startup.Level]string{startup.Error: red, startup.Warning: yellow}
	for _, f := range v.Findings {
		p.line("%s: %s", p.paint(colours[f.Level], string(f.Level)), f.Message)
		if f.Remedy != "" {
			p.line("  %s", f.Remedy)
		}
	}
	for _, n := range v.Notes {
		p.line("note: %s", n)
	}
}
