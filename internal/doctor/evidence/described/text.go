package described

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Text has the objects and the rows of tables that a text contains.
type Text struct {
	Objects []Object // what kubectl describe printed
	Events  []Event  // of kubectl get events
	Pods    []Row    // of kubectl get pods
	Nodes   []Node   // of kubectl get nodes
}

// Empty reports whether nothing was read.
func (t Text) Empty() bool { return len(t.Objects)+len(t.Events)+len(t.Pods)+len(t.Nodes) == 0 }

// An Object is a pod, or a workload.
type Object struct {
	Kind       string
	Meta       metav1.ObjectMeta
	Line       int              // of its first line
	Pod        *corev1.Pod      // nil of a workload
	Unit       map[string]Known // by container: which fields the text has
	Want, Have int              // pods of a workload; -1: not known
	Failing    string           // message of a condition of a workload that says that pods cannot be created; "-": the condition is there, without one
	Events     []Event
	Whole      bool // the text goes to the events, which come last
}

// Known says which fields of a container are in the text.
type Known struct{ Restarts bool }

// An Event is a line of a table of events. Its times are ages at the time of the text.
type Event struct {
	Kind, Namespace, Name       string // the object; empty: the one of the description
	Container                   string
	Type, Reason, From, Message string
	Count                       int
	Last, First                 Age
	Line                        int
}

// An Age is the time from an event to the text. It was not less than Least and less than Least+Error. Error is 0 if the
// age is not known.
type Age struct{ Least, Error time.Duration }

// A Row is a line of kubectl get pods.
type Row struct {
	Namespace, Name, Status string
	Ready, Of, Restarts     int
	Ended                   Age // since the last restart
	Age                     Age
	Node                    string // empty: the line does not have it
	Line                    int
}

// A Node is a line of kubectl get nodes.
type Node struct {
	Name, Status string
	Age          Age
	Line         int
}

// Limits of a text.
const (
	mostObjects = 2000
	mostRows    = 50_000
	mostUnits   = 1000     // containers of an object
	longest     = 64 << 10 // bytes of a line, and of a text of several lines
	mostTries   = 1000
)

// Is reports whether a text looks like one that this package reads.
func Is(head []byte) bool {
	return named.Match(head) && inNamespace.Match(head) || hasUnits.Match(head) && hasState.Match(head) || describes.Match(head) && hasState.Match(head) || eventsHead.Match(head) || rowsHead.Match(head) || nodesHead.Match(head)
}

// IsHead reports whether a line is the head of a table of pods, or of events.
func IsHead(line string) bool { return rowsHead.MatchString(line) || eventsHead.MatchString(line) }

const quoted = `(?m)^((?:[ \t]*>)*[ \t]*)`

// The beginnings of what kubectl prints.
var (
	named        = regexp.MustCompile(quoted + `Name:[ \t]+([a-z0-9][-a-z0-9.]*)[ \t\r]*$`)
	inNamespace  = regexp.MustCompile(quoted + `Namespace:[ \t]+[a-z0-9]`)
	hasUnits     = regexp.MustCompile(quoted + `(?:Init )?Containers:[ \t\r]*$`)
	hasState     = regexp.MustCompile(quoted + `(?:Last )?State:[ \t]+(?:Running|Waiting|Terminated)`)
	eventsHead   = regexp.MustCompile(quoted + `(?:(?:NAMESPACE|LAST SEEN|FIRST SEEN)[ \t]+.*REASON[ \t].*MESSAGE|Type[ \t]+Reason[ \t]+Age[ \t]+From[ \t]+Message|FirstSeen[ \t]+LastSeen[ \t]+Count)`)
	rowsHead     = regexp.MustCompile(quoted + `(?:NAMESPACE[ \t]+)?NAME[ \t]+READY[ \t]+STATUS[ \t]+RESTARTS[ \t]+AGE`)
	nodesHead    = regexp.MustCompile(quoted + `NAME[ \t]+STATUS[ \t]+ROLES[ \t]+AGE[ \t]+VERSION`)
	describes    = regexp.MustCompile(`(?m)\bkubectl\b.*\bdescribe[ \t]+(?:-\S+[ \t]+)*(?:po|pods?)[ \t/]+([a-z0-9][-a-z0-9.]*)`)
	describesAny = regexp.MustCompile(`\bkubectl\b[^|]*\bdescribe\b([^|]*)`)
	aName        = regexp.MustCompile(`^[a-z0-9][-a-z0-9.]*`)
	workEnds     = regexp.MustCompile(`^(?:Conditions|Events):[ \t]*$`) // the last parts of a description
	commandIn    = regexp.MustCompile(`\bkubectl\b[^|]*[ \t](?:-n|--namespace)[ \t=]*([a-z0-9][-a-z0-9]*)`)
	outside      = regexp.MustCompile("^[ \t>]*(?:```|~~~)") // a fence of Markdown
)

// WorkloadKind returns the kind of workloads that kubectl knows by a name, in any case: Deployment for deploy; empty: of none.
func WorkloadKind(name string) string { return workloads[strings.ToLower(name)] }

var workloads = map[string]string{"deploy": "Deployment", "deployment": "Deployment", "deployments": "Deployment", "sts": "StatefulSet", "statefulset": "StatefulSet",
	"statefulsets": "StatefulSet", "ds": "DaemonSet", "daemonset": "DaemonSet", "daemonsets": "DaemonSet", "rs": "ReplicaSet", "replicaset": "ReplicaSet",
	"replicasets": "ReplicaSet", "job": "Job", "jobs": "Job", "cj": "CronJob", "cronjob": "CronJob", "cronjobs": "CronJob"}

// Read reads a text.
func Read(text []byte) Text {
	r := reader{}
	for line := range bytes.Lines(text) {
		r.number++
		if len(line) <= longest {
			r.lines = append(r.lines, strings.TrimRight(string(line), " \t\r\n"))
		} else {
			r.lines = append(r.lines, "")
		}
	}
	for r.at < len(r.lines) {
		r.step()
	}
	r.end()
	return r.out
}

// A reader reads the lines of a text.
type reader struct {
	lines  []string
	number int
	at     int
	object *object   // that is being read; nil: none
	in     string    // the namespace that the last command names
	of     string    // the pod that the last command describes; empty: none, or its description has begun
	work   [2]string // kind and name of the workload that it describes; empty: none, or its description has begun
	tries  int       // lines at which a description that was cut off might have begun
	out    Text
}

// step reads the line at which the reader is, and perhaps those of its table.
func (r *reader) step() {
	line := r.lines[r.at]
	r.command(line)
	switch prefix, begins := r.begins(line); {
	case begins && len(r.out.Objects) < mostObjects:
		r.end()
		r.object = newObject(prefix, r.at+1)
		r.object.line(line)
	case r.work[1] != "" && r.object == nil && workEnds.MatchString(line):
		r.object = newObject("", r.at+1)
		r.object.Kind = r.work[0]
		for _, text := range []string{"Name: " + r.work[1], "Namespace: " + r.in} {
			r.object.line(text)
		}
		return // the line is read as one of it
	case r.of != "" && r.object == nil && r.fragment(line):
		r.object = newObject("", r.at+1)
		for _, text := range []string{"Name: " + r.of, "Namespace: " + r.in, "Containers:", line} {
			r.object.line(text)
		}
	case outside.MatchString(line):
		r.end()
	case rowsHead.MatchString(line):
		r.end()
		r.rows()
		return
	case nodesHead.MatchString(line):
		r.end()
		r.nodes()
		return
	case eventsHead.MatchString(line):
		events := r.events()
		if r.object == nil {
			r.out.Events = append(r.out.Events, events...)
			return
		}
		r.object.Events, r.object.Whole = append(r.object.Events, events...), true
		r.end()
		return
	case r.object == nil && r.loose(line):
	case r.object != nil:
		r.object.line(line)
	}
	r.at++
}

// command reads a command of kubectl, which ends what came before. What it prints may have been cut to some lines of it.
func (r *reader) command(line string) {
	if !strings.Contains(line, "kubectl ") {
		return
	}
	if strings.HasPrefix(strings.TrimLeft(line, " \t>"), "$ ") {
		r.end()
	}
	if m := commandIn.FindStringSubmatch(line); m != nil {
		r.in = m[1]
	}
	r.of, r.work = "", [2]string{}
	if m := describes.FindStringSubmatch(line); m != nil {
		r.of = m[1]
	} else if m := describesAny.FindStringSubmatch(line); m != nil {
		words := strings.FieldsFunc(m[1], func(c rune) bool { return c == ' ' || c == '\t' || c == '/' })
		for i, w := range words[:max(len(words)-1, 0)] {
			resource, _, _ := strings.Cut(w, ".") // deployments.apps
			if kind, name := WorkloadKind(resource), aName.FindString(words[i+1]); kind != "" && name != "" {
				r.work = [2]string{kind, name}
			}
		}
	}
}

// fragment reports whether a line is the name of a container, with its state in the next lines: of the description of a
// pod nothing else is there, as grep prints it.
func (r *reader) fragment(line string) bool {
	return unitName.MatchString(line) && line != strings.TrimLeft(line, " \t") && slices.ContainsFunc(r.lines[r.at+1:min(r.at+40, len(r.lines))], hasState.MatchString)
}

// begins reports whether a description begins at the current line, and returns what precedes each of its lines. It may
// begin in the middle, if what comes before was cut off.
func (r *reader) begins(line string) (prefix string, yes bool) {
	if m := named.FindStringSubmatch(line); m != nil && (r.object == nil || !r.object.within(line)) {
		for _, next := range r.lines[r.at+1 : min(r.at+12, len(r.lines))] {
			if strings.HasPrefix(next, m[1]) && inNamespace.MatchString(next) {
				return m[1], true
			}
		}
	}
	if m := hasUnits.FindStringSubmatch(line); m != nil && r.object == nil && r.tries < mostTries {
		r.tries++
		return m[1], slices.ContainsFunc(r.lines[r.at:min(r.at+200, len(r.lines))], hasState.MatchString)
	}
	return "", false
}

// add adds a line to a text of several lines, up to a limit.
func add(to *string, line string) {
	if len(*to) < longest {
		*to += "\n" + line
	}
}

// end ends the description that is being read.
func (r *reader) end() {
	if r.object != nil {
		if o, is := r.object.done(); is {
			r.out.Objects = append(r.out.Objects, o)
			r.of, r.work = "", [2]string{}
		}
	}
	r.object = nil
}
