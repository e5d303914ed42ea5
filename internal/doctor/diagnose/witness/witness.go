// Package witness asks the files beside a pod what they say about one destination that its containers called: tables and
// descriptions of Services and endpoints, their objects, network policies, what a network plugin dropped, the logs of
// other pods, and the configuration of a helper. The pod's own object, events and logs are none.
//
// A file is read once, with bounds ([mostText]); what it says is kept as values, each with the line that says it. A call
// is then a [Question], and the first row of a table that the values answer is its [Answer].
//
// Where to read:
//
//	answers.go   the table of answers
//	service.go   Services and their endpoints, of objects; policy.go: network policies
//	table.go     the same, as kubectl prints them for people
//	lines.go     lines of logs: what was dropped, which program listens where, how another one ended
//	nodes.go     nodes, and where volumes can be used
//	mtls.go      which namespaces get a proxy, and which want mutual TLS
//	setting.go   where a configuration has a helper listen
//	control.go   the programs of the control plane that the log of a proxy names
package witness

import (
	"bytes"
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/evidence"
)

// Limits of what is read and kept.
const (
	mostText   = 1 << 20 // bytes of a file in which objects, tables and settings are looked for
	mostValues = 2000    // values of a kind
	mostAsked  = 50      // destinations
)

// A Record has what the files beside a pod say.
type Record struct {
	pod      *evidence.Pod
	secrets  bool
	asked    []doctor.Destination
	services []*service
	policies []policy
	drops    []drop
	listens  []listen
	endings  []ending
	texts    []text
	rows     []row
	said     []said
	own      map[string]string // the pod's own line of kubectl get pods, by its columns
	nodes    []*node
	bounds   []bound
	spaces   []namespace
	mtls     []mtls
	waited   []string // names of what the pod waits for
}

// A text is the beginning of a file beside the pod.
type text struct {
	from     evidence.Source
	of       string // its name
	lines    []string
	commands []command
	secret   bool // it has a Secret, of which nothing but keys is quoted
}

// A command is a line of a text with a command of kubectl, which says what the lines below it are about.
type command struct {
	line      int
	words     string
	namespace string
}

// Each kind of value is bounded: what comes after mostValues of them says nothing.

func (r *Record) keepPolicy(p policy) {
	if len(r.policies) < mostValues {
		r.policies = append(r.policies, p)
	}
}

func (r *Record) keepRow(p row) {
	if len(r.rows) < mostValues {
		r.rows = append(r.rows, p)
	}
}

func (r *Record) keepService(s *service) *service {
	if len(r.services) == mostValues {
		return nil
	}
	r.services = append(r.services, s)
	return s
}

func (r *Record) keepNode(n *node) {
	i := slices.IndexFunc(r.nodes, func(m *node) bool { return m.name == n.name })
	switch {
	case i < 0 && len(r.nodes) < mostValues:
		r.nodes = append(r.nodes, n)
	case i >= 0:
		if n.status != "" {
			r.nodes[i].status, r.nodes[i].quote = n.status, n.quote
		}
		for k, v := range n.labels { // in any order
			r.nodes[i].labels[k] = v
		}
	}
}

func (r *Record) keepBound(b bound) {
	if len(r.bounds) < mostValues {
		r.bounds = append(r.bounds, b)
	}
}

func (r *Record) keepSpace(n namespace) {
	if len(r.spaces) < mostValues {
		r.spaces = append(r.spaces, n)
	}
}

func (r *Record) keepMTLS(m mtls) {
	if len(r.mtls) < mostValues {
		r.mtls = append(r.mtls, m)
	}
}

func (r *Record) keepOwn(cells map[string]string) { r.own = cells }

// Read reads the files beside a pod, which are asked about the destinations of its failed calls. It fails only if ctx
// ends: a file that cannot be read says nothing.
func Read(ctx context.Context, p *evidence.Pod, failed calls.Calls, secrets bool) (*Record, error) {
	r := &Record{pod: p, secrets: secrets}
	if p.Object.UID != "" {
		r.waited = append(r.waited, string(p.Object.UID))
	}
	for _, y := range failed {
		if y.To.Known() && !slices.Contains(r.asked, y.To) && len(r.asked) < mostAsked {
			r.asked = append(r.asked, y.To)
		}
	}
	for _, g := range p.Object.Spec.ReadinessGates {
		r.waited = append(r.waited, path.Base(string(g.ConditionType)))
	}
	for _, b := range p.Beside {
		if b.Of != "" {
			continue
		}
		head, err := b.Head(ctx, mostText)
		if err != nil {
			continue
		}
		t := text{from: b.Source, of: path.Base(b.Source.File)}
		for line := range bytes.Lines(head) {
			t.lines = append(t.lines, strings.TrimRight(string(line), "\r\n"))
			t.secret = t.secret || strings.Contains(t.lines[len(t.lines)-1], "kind: Secret")
		}
		t.readCommands()
		r.texts = append(r.texts, t)
		r.readObjects(head, b.Source)
		r.readTables(t)
		r.readNodes(t)
		r.readMesh(t)
	}
	for _, b := range p.Beside { // after the Services, whose addresses lines may have
		if err := r.readLines(ctx, b); ctx.Err() != nil {
			return nil, err
		}
	}
	return r, ctx.Err()
}

var (
	kubectl     = regexp.MustCompile(`\b(?:kubectl|oc|k)\s+\S`)
	inNamespace = regexp.MustCompile(`\s(?:-n|--namespace)[ \t=]*([a-z0-9][-a-z0-9]*)`)
)

func (t *text) readCommands() {
	for i, line := range t.lines {
		if len(line) < 500 && len(t.commands) < mostValues && kubectl.MatchString(line) {
			c := command{line: i + 1, words: line}
			if m := inNamespace.FindStringSubmatch(line); m != nil {
				c.namespace = m[1]
			}
			t.commands = append(t.commands, c)
		}
	}
}

// about returns the last command before a line; the zero value: there is none.
func (t *text) about(line int) (c command) {
	for _, d := range t.commands {
		if d.line >= line {
			break
		}
		c = d
	}
	return c
}

func (t *text) quote(line int, secrets bool) evidence.Quote {
	from := t.from
	from.Line = line
	return evidence.Quote{Source: from, Text: evidence.Show([]byte(strings.TrimSpace(t.lines[line-1])), secrets)}
}

// words returns the parts of a text that may be names, addresses or numbers.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '-')
	})
}

// generated matches what controllers add to the names of their pods.
var generated = regexp.MustCompile(`^-(?:\d+|[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9a-z]{6,10}(?:-[bcdfghjklmnpqrstvwxz2456789]{5})?)$`)

// means reports whether a word is a name, the name of a file after it, or that of a pod of a workload with that name.
func means(word, name string) bool {
	for _, end := range []string{".log", ".txt", ".out"} {
		word = strings.TrimSuffix(word, end)
	}
	word = strings.TrimSuffix(strings.Trim(word, "."), ".previous")
	rest, is := strings.CutPrefix(word, name)
	return is && name != "" && (rest == "" || generated.MatchString(rest))
}

// mentions reports whether a line has a host, by one of its names, and a port; 0: any.
func mentions(in []string, hosts []string, port uint16) bool {
	number := portOf(port)
	return slices.ContainsFunc(hosts, func(h string) bool { return slices.ContainsFunc(in, func(w string) bool { return means(w, h) }) }) &&
		(port == 0 || slices.Contains(in, number))
}

// A Question is a failed call.
type Question struct {
	Failure calls.Failure
	To      doctor.Destination
	Via     string        // what a proxy called for it, as its log has it; empty: not known
	InVain  bool          // the proxy got no answer to it, as its log has it
	At      evidence.Time // of the call, and of the last one like it
	Last    evidence.Time
	Said    string // the line of the call
}
