package described

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var gap = regexp.MustCompile(`[ \t]{2,}|\t`)

// A table has the columns of a head, and where each begins.
type table struct {
	names  []string
	begins []int
}

// headOf reads the head of a table. Its names are separated by two spaces or more, since they may have one.
func headOf(line string) (t table) {
	line = strings.ReplaceAll(line, "\t", "   ")
	at := len(line) - len(strings.TrimLeft(line, " >"))
	for _, name := range gap.Split(line[at:], -1) {
		if name == "" {
			continue
		}
		begin := at + strings.Index(line[at:], name)
		t.names, t.begins = append(t.names, name), append(t.begins, begin)
		at = begin + len(name)
	}
	return t
}

// cells returns the cells of a line by the names of their columns. The last has the rest of the line. If a cell is
// empty, the cells are found by the columns of the head.
func (t table) cells(line string) map[string]string {
	out := map[string]string{}
	parts := gap.Split(strings.TrimLeft(line, " \t>"), len(t.names))
	if tabs := strings.SplitN(strings.TrimLeft(line, " >"), "\t", len(t.names)); len(tabs) == len(t.names) {
		parts = tabs // one by one, since a cell may be empty
	}
	if len(parts) < len(t.names) {
		parts = nil
		for i, begin := range t.begins {
			end := len(line)
			if i+1 < len(t.begins) {
				end = min(t.begins[i+1], end)
			}
			parts = append(parts, line[min(begin, end):end])
		}
	}
	for i, name := range t.names {
		out[strings.ToLower(name)] = strings.TrimSpace(parts[i])
	}
	return out
}

// events reads a table of events, from its head on.
func (r *reader) events() (out []Event) {
	head := headOf(r.lines[r.at])
	for r.at++; r.at < len(r.lines) && len(out) < mostRows; r.at++ {
		line := r.lines[r.at]
		switch e, is := eventOf(head.cells(line)); {
		case strings.Trim(line, " \t->") == "" && line != "": // dashes below the head
		case is:
			e.Line = r.at + 1
			out = append(out, e)
		case len(out) > 0 && line != "" && (strings.TrimLeft(line, " \t>") != line && !hasField.MatchString(line) || r.goesOn(head)): // a message of several lines
			add(&out[len(out)-1].Message, strings.TrimSpace(line))
		default:
			return out
		}
	}
	return out
}

// goesOn reports whether a further row of a table comes soon after the current line, and nothing else begins before it: the
// lines between belong to the message of an event.
func (r *reader) goesOn(head table) bool {
	const most = 40
	for i, line := range r.lines[r.at:min(r.at+most, len(r.lines))] {
		if _, is := eventOf(head.cells(line)); is {
			return i > 0
		}
		if line == "" || outside.MatchString(line) || rowsHead.MatchString(line) || nodesHead.MatchString(line) || eventsHead.MatchString(line) || named.MatchString(line) || strings.Contains(line, "kubectl ") {
			return false
		}
	}
	return false
}

var hasField = regexp.MustCompile(`^[ \t>]*[A-Z][A-Za-z ]*:(?:\s|$)`)

var types = []string{"Normal", "Warning"}

// eventOf returns the event of a row, and false if the row is none.
func eventOf(cells map[string]string) (Event, bool) {
	first := func(names ...string) string {
		for _, n := range names {
			if cells[n] != "" {
				return cells[n]
			}
		}
		return ""
	}
	e := Event{Type: cells["type"], Reason: cells["reason"], Message: cells["message"], From: first("from", "source"), Namespace: cells["namespace"], Count: 1}
	if !slices.Contains(types, e.Type) || !reason.MatchString(e.Reason) {
		return e, false
	}
	e.Kind, e.Name, _ = strings.Cut(cells["object"], "/")
	if kind, known := kinds[strings.ToLower(e.Kind)]; known {
		e.Kind = kind
	}
	last, rest, _ := strings.Cut(first("age", "last seen", "lastseen"), " ")
	e.Last = age(last)
	e.First = e.Last
	if m := times.FindStringSubmatch(rest); m != nil {
		e.Count, e.First = max(number(m[1]), 1), age(m[2])
	}
	if f := first("first seen", "firstseen"); f != "" {
		e.First = age(f)
	}
	if n := number(cells["count"]); n > 0 {
		e.Count = n
	}
	e.From, _, _ = strings.Cut(e.From, ",")
	e.Container = containerOf(first("subobjectpath", "subobject"), e.Message)
	return e, true
}

var (
	reason = regexp.MustCompile(`^[A-Z][A-Za-z]*$`)
	times  = regexp.MustCompile(`^\(x(\d+) over (\w+)\)$`)
)

// kinds has the kinds of objects of which events are read, by the names that kubectl prints.
var kinds = map[string]string{"pod": "Pod", "replicaset": "ReplicaSet", "deployment": "Deployment", "statefulset": "StatefulSet", "daemonset": "DaemonSet",
	"job": "Job", "cronjob": "CronJob", "replicationcontroller": "ReplicationController", "node": "Node"}

// says has the messages of the kubelet that name a container. Sources: pkg/kubelet/kuberuntime and pkg/kubelet/images
// of Kubernetes.
var says = []*regexp.Regexp{
	regexp.MustCompile(`^Created container:? ([-a-z0-9]+)$`),
	regexp.MustCompile(`^Container created: ([-a-z0-9]+)$`),
	regexp.MustCompile(`^Started container:? ([-a-z0-9]+)$`),
	regexp.MustCompile(`^Container started: ([-a-z0-9]+)$`),
	regexp.MustCompile(`^Stopping container ([-a-z0-9]+)`),
	regexp.MustCompile(`^Back-off restarting failed container ([-a-z0-9]+) in pod `),
	regexp.MustCompile(`^Container ([-a-z0-9]+) (?:failed (?:liveness|startup) probe|definition changed)`),
	regexp.MustCompile(`^Init container ([-a-z0-9]+) `),
	regexp.MustCompile(`failed to start container "([-a-z0-9]+)"`),
	regexp.MustCompile(`(?:lifecycle hook|Hook) .*for Container "([-a-z0-9]+)"`),
}

// containerOf returns the container of an event: by the path of its object, or by its message; empty: neither names one.
func containerOf(path, message string) string {
	if _, name, ok := strings.Cut(path, "{"); ok {
		return strings.TrimSuffix(name, "}")
	}
	for _, p := range says {
		if m := p.FindStringSubmatch(message); m != nil {
			return m[1]
		}
	}
	return ""
}

// units of ages, in the order in which they are written.
var units = []struct {
	letter string
	length time.Duration
}{{"y", 365 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}

var ageText = regexp.MustCompile(`^(?:\d+[ydhms])+$`)

// age reads an age such as 4m33s. Its error is its smallest unit.
func age(text string) (a Age) {
	if !ageText.MatchString(text) || len(text) > 30 {
		return Age{}
	}
	for _, u := range units {
		n, rest, ok := strings.Cut(text, u.letter)
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(n, 10, 32)
		if err != nil || v > 100_000 {
			return Age{}
		}
		a.Least, a.Error, text = a.Least+time.Duration(v)*u.length, u.length, rest
	}
	if text != "" || a.Least < 0 {
		return Age{}
	}
	return a
}

var restarted = regexp.MustCompile(`^(\d+)(?: \((\w+) ago\))?$`)

// rows reads a table of pods, from its head on.
func (r *reader) rows() {
	head := headOf(r.lines[r.at])
	for r.at++; r.at < len(r.lines) && len(r.out.Pods) < mostRows; r.at++ {
		c := head.cells(r.lines[r.at])
		ready, of, ok := strings.Cut(c["ready"], "/")
		m := restarted.FindStringSubmatch(c["restarts"])
		if !ok || m == nil || number(ready) < 0 || number(of) < 0 || strings.Contains(c["name"], " ") || c["status"] == "" {
			return
		}
		r.out.Pods = append(r.out.Pods, Row{Namespace: cmp.Or(c["namespace"], r.in), Name: ofPod.ReplaceAllString(c["name"], ""), Status: c["status"], Ready: number(ready), Of: number(of), Restarts: number(m[1]),
			Ended: age(m[2]), Age: age(c["age"]), Node: nodeIn(c["node"]), Line: r.at + 1})
	}
}

// Of lines of tables whose heads are not there.
var (
	aRow = regexp.MustCompile(`^(?:[ \t]*>)*[ \t|]*(?:([a-z0-9][-a-z0-9]*)(?:[ ]{2,}|\t)[ \t]*)?(?:pods?/)?([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)[ \t]+(\d{1,3})/(\d{1,3})[ \t]+([A-Z][A-Za-z]*(?::[A-Za-z0-9/]+)*)[ \t]+(\d{1,6})(?:[ \t]+\((\w+) ago\))?` +
		`(?:[ \t]+((?:\d+[ydhms])+)(?:[ \t]+(?:\d+\.\d+\.\d+\.\d+|[0-9a-f]*:[0-9a-f:]+|<none>)[ \t]+(\S+))?(?:[ \t].*)?)?$`)
	anEvent  = regexp.MustCompile(`^(?:[ \t]*>)*[ \t|]*(?:([a-z0-9][-a-z0-9]*)(?:[ ]{2,}|\t)[ \t]*)?((?:\d+[ydhms])+(?: \(x\d+ over \w+\))?)[ \t]+(Normal|Warning)[ \t]+([A-Z][A-Za-z]+)[ \t]+([a-z]+/[a-z0-9][-a-z0-9.]*)[ \t]+(\S.*)$`)
	anOwn    = regexp.MustCompile(`^(?:[ \t]*>)*[ \t|]*(Normal|Warning)[ \t]+([A-Z][A-Za-z]+)[ \t]+((?:\d+[ydhms])+(?: \(x\d+ over \w+\))?)[ \t]+([a-z][-a-z0-9]*)[ \t]+(\S.*)$`)
	ofPod    = regexp.MustCompile(`^pods?/`)
	noColumn = regexp.MustCompile(`^(?:<none>|<unset>|-)?$`)
)

// RowOf returns the line of kubectl get pods that a line of a text is, by its form alone, since its head may not be there.
func RowOf(line string) (Row, bool) {
	m := aRow.FindStringSubmatch(line)
	if m == nil {
		return Row{}, false
	}
	return Row{Namespace: m[1], Name: m[2], Ready: number(m[3]), Of: number(m[4]), Status: m[5], Restarts: number(m[6]), Ended: age(m[7]), Age: age(m[8]), Node: nodeIn(m[9])}, true
}

func nodeIn(cell string) string {
	if noColumn.MatchString(cell) {
		return ""
	}
	return cell
}

// EventLine returns the event that a line of a text is, by its form alone: of kubectl get events with its object, of a
// description without.
func EventLine(line string) (Event, bool) {
	if m := anEvent.FindStringSubmatch(line); m != nil {
		return eventOf(map[string]string{"namespace": m[1], "last seen": m[2], "type": m[3], "reason": m[4], "object": m[5], "message": m[6]})
	}
	if m := anOwn.FindStringSubmatch(line); m != nil {
		return eventOf(map[string]string{"type": m[1], "reason": m[2], "age": m[3], "from": m[4], "message": m[5]})
	}
	return Event{}, false
}

// loose reads a line of a table whose head is not there.
func (r *reader) loose(line string) bool {
	if row, is := RowOf(line); is && len(r.out.Pods) < mostRows {
		row.Namespace, row.Line = cmp.Or(row.Namespace, r.in), r.at+1
		r.out.Pods = append(r.out.Pods, row)
		return true
	}
	if e, is := EventLine(line); is && len(r.out.Events) < mostRows {
		e.Line = r.at + 1
		if e.Name == "" { // of the pod in the line above, as a person puts them one below the other
			if n := len(r.out.Pods); n > 0 && r.at-r.out.Pods[n-1].Line < near {
				e.Kind, e.Namespace, e.Name = "Pod", r.out.Pods[n-1].Namespace, r.out.Pods[n-1].Name
			}
		}
		r.out.Events = append(r.out.Events, e)
		return true
	}
	return false
}

// near is the number of lines between the line of a pod and events of which no object is said.
const near = 8

// nodes reads a table of nodes, from its head on.
func (r *reader) nodes() {
	head := headOf(r.lines[r.at])
	for r.at++; r.at < len(r.lines) && len(r.out.Nodes) < mostRows; r.at++ {
		c := head.cells(r.lines[r.at])
		old := age(c["age"])
		if c["name"] == "" || strings.Contains(c["name"], " ") || old.Error == 0 || !strings.HasSuffix(strings.Split(c["status"], ",")[0], "Ready") && c["status"] != "Unknown" {
			return
		}
		r.out.Nodes = append(r.out.Nodes, Node{c["name"], c["status"], old, r.at + 1})
	}
}
