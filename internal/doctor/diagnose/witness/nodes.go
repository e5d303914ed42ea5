package witness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// A node has what the evidence tells of a node: its object, its description, or a line of a table.
type node struct {
	name   string
	status string            // as kubectl get nodes has it; empty: not known
	labels map[string]string // by the names of columns, which are the last parts of labels in capitals
	quote  evidence.Quote
}

func (n *node) cordoned() bool { return strings.Contains(n.status, cordoned) }

func (n *node) lost() bool {
	return strings.HasPrefix(n.status, "NotReady") || strings.HasPrefix(n.status, "Unknown")
}

// usable reports whether a node takes pods, as far as is known.
func (n *node) usable() bool { return !n.cordoned() && !n.lost() }

func (n *node) String() string {
	switch {
	case n.lost():
		return n.name + " is " + n.status
	case n.cordoned():
		return n.name + " is cordoned"
	}
	return n.name
}

const cordoned = "SchedulingDisabled"

// A bound is a term of the node affinity of a volume: the nodes whose label has one of some values.
type bound struct {
	claim  string // of the volume; empty: not known
	key    string
	values []string
	quote  evidence.Quote
}

// column returns the name that kubectl gives the column of a label.
func column(label string) string {
	return strings.ToUpper(label[strings.LastIndex(label, "/")+1:])
}

// value returns the value of a label of a node.
func (n *node) value(key string) string {
	if column(key) == "HOSTNAME" && n.labels["HOSTNAME"] == "" {
		return n.name
	}
	return n.labels[column(key)]
}

func (r *Record) addNode(o *object, from evidence.Source) {
	var spec struct {
		Unschedulable bool `json:"unschedulable"`
	}
	if json.Unmarshal(o.Spec, &spec) != nil {
		return
	}
	n := &node{name: o.Metadata.Name, labels: map[string]string{}, quote: evidence.Quote{Source: from, Text: "Node " + o.Metadata.Name}}
	for k, v := range o.Metadata.Labels { // in any order
		n.labels[column(k)] = v
	}
	if spec.Unschedulable {
		n.status, n.quote.Text = "Ready,"+cordoned, n.quote.Text+": unschedulable: true"
	}
	r.keepNode(n)
}

func (r *Record) addVolume(o *object, from evidence.Source) {
	var spec struct {
		ClaimRef     struct{ Namespace, Name string } `json:"claimRef"`
		NodeAffinity struct {
			Required struct {
				Terms []struct {
					MatchExpressions []struct {
						Key, Operator string
						Values        []string
					} `json:"matchExpressions"`
				} `json:"nodeSelectorTerms"`
			} `json:"required"`
		} `json:"nodeAffinity"`
	}
	if json.Unmarshal(o.Spec, &spec) != nil || spec.ClaimRef.Namespace != "" && spec.ClaimRef.Namespace != r.pod.Object.Namespace && r.pod.Object.Namespace != "" || len(spec.NodeAffinity.Required.Terms) != 1 {
		return
	}
	for _, e := range spec.NodeAffinity.Required.Terms[0].MatchExpressions {
		if e.Operator == "In" {
			r.keepBound(bound{spec.ClaimRef.Name, e.Key, e.Values, evidence.Quote{Source: from, Text: fmt.Sprintf("PersistentVolume %s: node affinity %s in %v", o.Metadata.Name, e.Key, e.Values)}})
		}
	}
}

var (
	nodeHead = regexp.MustCompile(`^[ \t>|$]*NAME\s+STATUS\s+ROLES\s+AGE\s+VERSION\b`)
	// nodeRow matches a line of kubectl get nodes, also without the head of its table.
	nodeRow = regexp.MustCompile(`^[ \t>|]*(?:node/)?([a-z0-9][-a-z0-9.]*)\s+((?:Ready|NotReady|Unknown)(?:,SchedulingDisabled)?)\s+\S+\s+\S+\s+v1\.\d+\S*`)
	// affinity matches a term of the node affinity in the description of a volume.
	affinity = regexp.MustCompile(`^[ \t>]*Term \d+:\s+([\w.-]+(?:/[\w.-]+)?) in \[([^\]]*)\]`)
	claimOf  = regexp.MustCompile(`^[ \t>]*Claim:\s+(?:\S+/)?(\S+)`)
)

// readNodes reads what kubectl printed for people of nodes, and of where volumes can be used.
func (r *Record) readNodes(t text) {
	var columns []string
	claim := ""
	for i, line := range t.lines {
		if len(line) > 2000 {
			continue
		}
		if nodeHead.MatchString(line) {
			columns = gap.Split(strings.Trim(line, " \t>|$"), -1)
			continue
		}
		if m := nodeRow.FindStringSubmatch(line); m != nil {
			n := &node{name: m[1], status: m[2], labels: map[string]string{}, quote: t.quote(i+1, r.secrets)}
			if cells := gap.Split(strings.Trim(line, " \t>|"), -1); len(cells) == len(columns) {
				for j := 5; j < len(cells); j++ {
					n.labels[columns[j]] = cells[j]
				}
			}
			r.keepNode(n)
			continue
		}
		if m := claimOf.FindStringSubmatch(line); m != nil {
			claim = m[1]
		} else if c := r.claimIn(line); c != "" {
			claim = c
		}
		if m := affinity.FindStringSubmatch(line); m != nil {
			r.keepBound(bound{claim, m[1], strings.FieldsFunc(m[2], func(c rune) bool { return c == ',' || c == ' ' }), t.quote(i+1, r.secrets)})
		}
	}
	r.describedNodes(t)
}

// claimIn returns the claim of the pod that a line names.
func (r *Record) claimIn(line string) string {
	for _, v := range r.pod.Object.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && slices.Contains(words(line), v.PersistentVolumeClaim.ClaimName) {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

var (
	describedName = regexp.MustCompile(`^Name:\s+([a-z0-9][-a-z0-9.]*)\s*$`)
	describedPair = regexp.MustCompile(`^(?:Labels:)?\s+([\w.-]+(?:/[\w.-]+)?)=(\S*)\s*$`)
	unschedulable = regexp.MustCompile(`^Unschedulable:\s+true`)
	taken         = regexp.MustCompile(`^(?:Roles|Unschedulable|Taints):`)
)

// describedNodes reads descriptions of nodes.
func (r *Record) describedNodes(t text) {
	var n *node
	is := false // a line that only the description of a node has
	keep := func() {
		if n != nil && is {
			r.keepNode(n)
		}
		n, is = nil, false
	}
	for i, line := range t.lines {
		if m := describedName.FindStringSubmatch(line); m != nil {
			keep()
			n = &node{name: m[1], labels: map[string]string{}, quote: t.quote(i+1, r.secrets)}
			continue
		}
		if n == nil {
			continue
		}
		is = is || taken.MatchString(line)
		if m := describedPair.FindStringSubmatch(line); m != nil && len(n.labels) < mostValues && !is {
			n.labels[column(m[1])] = m[2]
		} else if m != nil && len(n.labels) < mostValues {
			n.labels[column(m[1])] = cmp.Or(n.labels[column(m[1])], m[2])
		}
		if unschedulable.MatchString(line) {
			n.status, n.quote = "Ready,"+cordoned, t.quote(i+1, r.secrets)
		}
	}
	keep()
}

// Placement adds to the finding about a pod without a node which nodes the scheduler's message means.
func (r *Record) Placement(f *result.Finding, message string) {
	if len(r.nodes) == 0 {
		return
	}
	add := func(says, remedy string, quotes []evidence.Quote) {
		f.Sentence = strings.TrimSuffix(f.Sentence, ".") + "; " + says
		f.Remedy.Sentence, f.Confidence = remedy, result.Likely
		f.Evidence = append(f.Evidence, quotes...)
	}
	if b := r.boundOf(); b != nil && strings.Contains(message, "volume node affinity conflict") {
		if says, remedy, quotes, is := r.within(*b); is {
			add(says, remedy, quotes)
			return
		}
	}
	var out []string
	var quotes []evidence.Quote
	barred := regexp.MustCompile(`unschedulable|not-ready|unreachable`).MatchString(message)
	for _, n := range r.nodes {
		if barred && !n.usable() {
			out, quotes = append(out, n.String()), append(quotes, n.quote)
		}
	}
	if len(out) > 0 {
		add(strings.Join(out[:min(len(out), 5)], ", "), "let pods on the nodes that take none (kubectl uncordon a node that is cordoned, bring back one that is not ready), or add a node", quotes[:min(len(quotes), 3)])
	}
}

// boundOf returns where the pod's volume can be used; nil: it is not known, or the volume may be another pod's.
func (r *Record) boundOf() *bound {
	var claims []string
	for _, v := range r.pod.Object.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		}
	}
	var found *bound
	for i, b := range r.bounds {
		if slices.Contains(claims, b.claim) || b.claim == "" && len(r.bounds) == 1 && len(claims) <= 1 {
			if found != nil && found.key == b.key && !slices.Equal(found.values, b.values) {
				return nil // of two volumes: which one is meant is not known
			}
			found = &r.bounds[i]
		}
	}
	return found
}

// within says which of the nodes can have a volume, and whether these take pods; false: the nodes do not show that.
func (r *Record) within(b bound) (says, remedy string, quotes []evidence.Quote, is bool) {
	var in, free []*node
	known := false
	for _, n := range r.nodes {
		v := n.value(b.key)
		known = known || v != ""
		if slices.Contains(b.values, v) {
			in = append(in, n)
			if n.usable() {
				free = append(free, n)
			}
		}
	}
	if !known {
		return "", "", nil, false
	}
	part := strings.ToLower(column(b.key))
	where := fmt.Sprintf("%s %s", part, strings.Join(b.values, " or "))
	quotes = []evidence.Quote{b.quote}
	says = fmt.Sprintf("its volume can be used in %s alone", where)
	const keep = ". Do not delete the claim: that may delete the data too"
	var names []string
	for _, n := range in {
		names = append(names, n.String())
		if len(quotes) < 4 {
			quotes = append(quotes, n.quote)
		}
	}
	switch {
	case len(in) == 0:
		return says + ", where no node is", fmt.Sprintf("add a node in %s%s", where, keep), quotes, true
	case len(free) > 0:
		return fmt.Sprintf("%s (%s)", says, strings.Join(names, ", ")), fmt.Sprintf("see what keeps the pod off the nodes in %s, or add a node there%s", where, keep), quotes, true
	}
	do := fmt.Sprintf("bring back %s", in[0].name)
	if in[0].cordoned() && !in[0].lost() {
		do = fmt.Sprintf("let pods on it again (kubectl uncordon %s)", in[0].name)
	}
	return fmt.Sprintf("%s, where %s", says, strings.Join(names, ", ")), fmt.Sprintf("%s, or add a node in %s%s", do, where, keep), quotes, true
}

// OfRow changes the report about a pod of which only a line is known, if the pod's node does not answer.
func (r *Record) OfRow(report *result.Report) {
	name := r.own["NODE"]
	i := slices.IndexFunc(r.nodes, func(n *node) bool { return n.name == name && n.lost() })
	if name == "" || i < 0 {
		return
	}
	n := r.nodes[i]
	f := result.Finding{
		Code: "node-lost", Confidence: result.Likely, Sentence: fmt.Sprintf("node %s is %s: what the pod's containers do is not known", n.name, n.status),
		Evidence: []evidence.Quote{{Source: r.pod.Row.Source, Text: fmt.Sprintf("STATUS %s, NODE %s", r.pod.Row.Status, name)}, n.quote},
		Disproof: "a report of the node's kubelet after that time",
		Remedy:   finding.Remedy{Sentence: fmt.Sprintf("see node %s, and bring it back", n.name), Command: "kubectl describe node " + n.name},
	}
	if r.pod.Row.Status == "Terminating" {
		f.Sentence = fmt.Sprintf("node %s is %s: the pod was marked for deletion, which waits for that node to answer", n.name, n.status)
		f.Remedy.Sentence = "bring the node back; if it is off for good, taint it with node.kubernetes.io/out-of-service, or delete the Node, so that the pod is replaced and its volumes are free. Force the deletion only if the node is surely off"
	}
	for _, p := range r.rows {
		if p.ready && p.status == "Running" && alike(p.name, r.pod.Object.Name) && p.node != "" && p.node != name {
			f.Sentence += fmt.Sprintf("; %s of the same workload runs on %s", p.name, p.node)
			f.Evidence = append(f.Evidence, p.quote)
			break
		}
	}
	report.Verdict, report.Sentence, report.Findings, report.Decide = result.Found, f.Sentence, []result.Finding{f}, ""
}

// alike reports whether two pods are of one ReplicaSet, by their names.
func alike(a, b string) bool {
	i := strings.LastIndex(a, "-")
	return i > 0 && generated.MatchString(a[i:]) && strings.HasPrefix(b, a[:i+1]) && generated.MatchString(b[i:])
}
