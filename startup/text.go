package startup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A SyntaxError reports a line that cannot be parsed.
type SyntaxError struct {
	Line   int
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// Parse parses the text of a plan. Each line is a statement; # begins a comment.
//
//	container proxy is sidecar, healthy by startup-probe
//	container migrate is init
//	container app is plain, restart never, healthy by readiness-probe, needs proxy
//	container other-proxy is plain, healthy by report, stops at once
//	container held-proxy is plain, healthy by report, outlives app
//	app after proxy is healthy
//	app after cache is healthy, optional, within 20s or continue, on restart notify, by gate
//	* after proxy is healthy
//
// In a text without a container statement, the containers follow from the edges: each name in an edge is a
// regular container that reports its own health, in order of appearance.
//
// Parse checks only the syntax; [Plan.Validate] checks whether the plan makes sense. The error is a
// [*SyntaxError].
func Parse(text string) (Plan, error) {
	var p Plan
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := p.parseLine(line); err != nil {
			return Plan{}, &SyntaxError{Line: i + 1, Reason: err.Error()}
		}
	}
	if len(p.Containers) == 0 {
		p.Containers = p.implied()
	}
	return p, nil
}

// implied returns the containers that are named in edges.
func (p Plan) implied() []Container {
	var out []Container
	for _, e := range p.Edges {
		for _, name := range []string{e.To, e.From} {
			named := slices.ContainsFunc(out, func(c Container) bool { return c.Name == name })
			if name != Everything && !named {
				out = append(out, Container{Name: name, Health: Report})
			}
		}
	}
	return out
}

func (p *Plan) parseLine(line string) error {
	clauses := strings.Split(line, ",")
	w := strings.Fields(clauses[0])
	switch {
	case len(w) == 4 && w[0] == "container" && w[2] == "is":
		c, err := parseContainer(w[1], w[3], clauses[1:])
		p.Containers = append(p.Containers, c)
		return err
	case len(w) == 5 && w[1] == "after" && w[3] == "is":
		e, err := parseEdge(w[0], w[2], w[4], clauses[1:])
		p.Edges = append(p.Edges, e)
		return err
	default:
		return fmt.Errorf("%q is neither %q nor %q", strings.TrimSpace(clauses[0]),
			"container NAME is KIND", "NAME after NAME is CONDITION")
	}
}

func parseContainer(name, kind string, clauses []string) (Container, error) {
	c := Container{Name: name}
	err := firstError(checkName(name), set(&c.Kind, kinds, kind))
	for _, clause := range clauses {
		if err != nil {
			return c, err
		}
		w := strings.Fields(clause)
		switch {
		case len(w) == 2 && w[0] == "restart":
			err = set(&c.Restart, restarts, w[1])
		case len(w) == 3 && w[0] == "healthy" && w[1] == "by":
			err = set(&c.Health, healths, w[2])
		case slices.Equal(w, []string{"stops", "at", "once"}):
			c.StopsAtOnce = true
		case len(w) > 1 && w[0] == "needs":
			c.HealthNeeds = append(c.HealthNeeds, w[1:]...)
			err = checkNames(w[1:])
		case len(w) > 1 && w[0] == "outlives":
			c.Outlives = append(c.Outlives, w[1:]...)
			err = checkNames(w[1:])
		default:
			err = fmt.Errorf("%q is no option of a container: want restart, healthy by, needs, outlives or stops at once", strings.TrimSpace(clause))
		}
	}
	return c, err
}

// ParseEdge reads the statement of one edge, such as "app after cache is healthy, within 20s".
func ParseEdge(statement string) (Edge, error) {
	if strings.ContainsAny(statement, "\n#") {
		return Edge{}, fmt.Errorf("%q is more than one statement", statement)
	}
	var p Plan
	if err := p.parseLine(statement); err != nil {
		return Edge{}, err
	}
	if len(p.Edges) == 0 {
		return Edge{}, fmt.Errorf("%q is no edge", statement)
	}
	return p.Edges[0], nil
}

func parseEdge(to, from, after string, clauses []string) (Edge, error) {
	e := Edge{From: from, To: to}
	err := firstError(checkEnd(to), checkEnd(from), set(&e.After, conditions, after))
	for _, clause := range clauses {
		if err != nil {
			return e, err
		}
		w := strings.Fields(clause)
		switch {
		case slices.Equal(w, []string{"optional"}):
			e.Optional = true
		case len(w) == 2 && w[0] == "within", len(w) == 4 && w[0] == "within" && w[2] == "or":
			err = e.parseTimeout(w)
		case len(w) == 3 && w[0] == "on" && w[1] == "restart":
			err = set(&e.OnRestart, onRestarts, w[2])
		case len(w) == 2 && w[0] == "by":
			err = set(&e.By, mechanismWords, w[1])
		default:
			err = fmt.Errorf("%q is no option of an edge: want optional, within, on restart or by", strings.TrimSpace(clause))
		}
	}
	return e, err
}

func (e *Edge) parseTimeout(w []string) (err error) {
	e.Timeout, err = time.ParseDuration(w[1])
	if err == nil && e.Timeout <= 0 {
		err = fmt.Errorf("a timeout of %s ends before it begins", w[1])
	}
	if err == nil && len(w) == 4 {
		err = set(&e.OnTimeout, onTimeouts, w[3])
	}
	return err
}

var (
	kinds          = words[Kind]{"plain", []Kind{Init, Sidecar}}
	restarts       = words[Restart]{"always", []Restart{OnFailure, Never}}
	onTimeouts     = words[OnTimeout]{"fail", []OnTimeout{Continue}}
	onRestarts     = words[OnRestart]{"ignore", []OnRestart{Notify, RestartTo}}
	conditions     = words[Condition]{"", []Condition{Started, Healthy, Completed}}
	healths        = words[Health]{"nothing", []Health{StartupProbe, ReadinessProbe, PostStart, Report}}
	mechanismWords = words[Mechanism]{"", Mechanisms}
)

// words holds the words by which text represents the values of a type.
type words[T ~string] struct {
	zero string // word for the empty value; empty if that value has no word
	rest []T    // values whose word is the value itself
}

func (ws words[T]) all() []string {
	var out []string
	if ws.zero != "" {
		out = append(out, ws.zero)
	}
	for _, w := range ws.rest {
		out = append(out, string(w))
	}
	return out
}

// set stores in *to the value that a word represents. If the word is unknown, the error lists the valid ones.
func set[T ~string](to *T, ws words[T], word string) error {
	if (word == "" || word != ws.zero) && !slices.Contains(ws.rest, T(word)) {
		return fmt.Errorf("%q is none of %s%s", word, strings.Join(ws.all(), ", "), didYouMean(word, ws.all()))
	}
	if *to = T(word); word == ws.zero {
		*to = ""
	}
	return nil
}

// String returns the plan as text that [Parse] can parse.
func (p Plan) String() string {
	var b strings.Builder
	for _, c := range p.Containers {
		fmt.Fprintln(&b, c)
	}
	for _, e := range p.Edges {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// String returns the container as a statement of a plan's text.
func (c Container) String() string {
	s := "container " + c.Name + " is " + cmp.Or(string(c.Kind), kinds.zero)
	if c.Restart != Always {
		s += ", restart " + string(c.Restart)
	}
	if c.Health != NoHealth {
		s += ", healthy by " + string(c.Health)
	}
	if len(c.HealthNeeds) > 0 {
		s += ", needs " + strings.Join(c.HealthNeeds, " ")
	}
	if c.StopsAtOnce {
		s += ", stops at once"
	}
	if len(c.Outlives) > 0 {
		s += ", outlives " + strings.Join(c.Outlives, " ")
	}
	return s
}

// String returns the edge as a statement of a plan's text.
func (e Edge) String() string {
	s := e.To + " after " + e.From + " is " + string(e.After)
	if e.Optional {
		s += ", optional"
	}
	if e.Timeout != 0 {
		s += ", within " + e.Timeout.String()
	}
	if e.Timeout != 0 && e.OnTimeout != Fail {
		s += " or " + string(e.OnTimeout)
	}
	if e.OnRestart != Ignore {
		s += ", on restart " + string(e.OnRestart)
	}
	if e.By != "" {
		s += ", by " + string(e.By)
	}
	return s
}

// checkName returns an error if a name is not a DNS label (RFC 1123), as the API server requires.
func checkName(name string) error {
	if !isLabel(name) {
		return fmt.Errorf("%q cannot be the name of a container: small letters, digits and '-', at most 63", name)
	}
	return nil
}

func checkNames(names []string) error {
	for _, n := range names {
		if err := checkName(n); err != nil {
			return err
		}
	}
	return nil
}

func isLabel(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-' && i > 0 && i < len(name)-1:
		default:
			return false
		}
	}
	return len(name) > 0 && len(name) <= 63
}

// checkEnd checks the name at an end of an edge, which may also be a wildcard.
func checkEnd(name string) error {
	if name == Everything {
		return nil
	}
	return checkName(name)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
