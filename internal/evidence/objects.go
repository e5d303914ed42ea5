package evidence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/manifest"
)

// owners are the kinds that pods belong to.
var owners = map[string]bool{"Job": true, "CronJob": true, "Deployment": true, "ReplicaSet": true, "StatefulSet": true, "DaemonSet": true, "ReplicationController": true}

// parse adds the objects of a file, YAML or JSON, of several documents or of lists. A document that
// cannot be read is noted, and the others are read.
func (b *bundle) parse(folder, file string, data []byte) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n\ufeff"); len(trimmed) > 0 && trimmed[0] == '{' {
		d := json.NewDecoder(bytes.NewReader(trimmed))
		before := len(data) - len(trimmed)
		for {
			var raw json.RawMessage
			err := d.Decode(&raw)
			if err == io.EOF {
				return
			}
			at := before + int(d.InputOffset())
			from := Source{Kind: FromPod, File: file, Line: 1 + bytes.Count(data[:max(at-len(raw), 0)], []byte("\n"))}
			if err != nil {
				from.Line = 1 + bytes.Count(data[:at], []byte("\n"))
				b.unused(from, "this is not JSON from here on: %s; want objects as kubectl get -o json prints them", manifest.Reason(err))
				return
			}
			b.object(folder, from, raw, "", "")
		}
	}
	for s := range manifest.Split(data) {
		if s.Empty() {
			continue
		}
		from := Source{Kind: FromPod, File: file, Line: s.Line}
		raw, err := manifest.JSON(s.Body)
		if err != nil {
			b.unused(from, "this is not YAML: %s; want objects as kubectl get -o yaml prints them", manifest.SyntaxReason(s.Body, err))
			continue
		}
		b.object(folder, from, raw, "", "")
	}
}

// object adds one object, or those of a list. Fields that this version of the API does not have are
// passed over.
func (b *bundle) object(folder string, from Source, raw []byte, apiVersion, kind string) {
	var head struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
		Process    *time.Time        `json:"process_started"`
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		b.unused(from, "this is no Kubernetes object")
		return
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		b.mismatch(from, "object", raw, err)
		return
	}
	head.Kind, head.APIVersion = cmp.Or(head.Kind, kind), cmp.Or(head.APIVersion, apiVersion)
	of, isList := strings.CutSuffix(head.Kind, "List")
	switch {
	case isList:
		if of == "" {
			head.APIVersion = ""
		}
		for _, item := range head.Items {
			b.object(folder, from, item, head.APIVersion, of)
		}
	case head.Kind == "Pod":
		b.addPod(folder, from, raw)
	case head.Kind == "Event":
		from.Kind = FromEvent
		b.addEvent(from, raw, strings.HasPrefix(head.APIVersion, "events.k8s.io/"))
	case owners[head.Kind]:
		from.Kind = FromOwner
		var object map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
			b.mismatch(from, head.Kind, raw, err)
			return
		}
		namespace, name, _ := identity(object)
		b.owners[about(head.Kind, namespace, name)] = Owner{Kind: head.Kind, Name: name, Object: object, Source: from}
	case head.Process != nil:
		from.Kind = FromJournal
		b.addJournal(folder, from, raw)
	case head.Kind == "":
		b.unused(from, "kind: missing: this is no Kubernetes object, nor what GET /startup of Outrider's agent answers")
	}
}

// mismatch notes a value of the wrong type by its field.
func (b *bundle) mismatch(from Source, what string, raw []byte, err error) {
	if m := manifest.FindMismatch(raw, err); m != nil {
		b.unused(from, "%s: %s: %v", what, cmp.Or(m.Field, "(the whole)"), m)
		return
	}
	b.unused(from, "%s: %s", what, manifest.Reason(err))
}

func identity(object map[string]any) (namespace, name, uid string) {
	meta, _ := object["metadata"].(map[string]any)
	namespace, _ = meta["namespace"].(string)
	name, _ = meta["name"].(string)
	uid, _ = meta["uid"].(string)
	return namespace, name, uid
}

func about(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}

func (b *bundle) addPod(folder string, from Source, raw []byte) {
	var pod corev1.Pod
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &pod); err != nil {
		b.mismatch(from, "Pod", raw, err)
		return
	}
	switch {
	case pod.Name == "":
		b.unused(from, "Pod: metadata.name: missing; want a pod as kubectl get pod NAME -o yaml prints it")
		return
	case len(pod.Spec.Containers) == 0:
		b.unused(from, "Pod %s: spec.containers: a pod has at least one", pod.Name)
		return
	}
	b.pod(folder, newPod(&pod, from))
}

// pod adds one. Of the same pod twice the newer object is kept; it is found in both folders.
func (b *bundle) pod(folder string, p *Pod) {
	for i, other := range b.pods {
		o := other.Pod.Object
		if o.Name != p.Object.Name || o.Namespace != p.Object.Namespace || o.UID != p.Object.UID {
			continue
		}
		if revision(p) > revision(other.Pod) {
			b.pods[i].Pod = p
		}
		b.pods[i].folders = append(b.pods[i].folders, folder)
		return
	}
	b.pods = append(b.pods, placed{Pod: p, folders: []string{folder}})
}

// revision orders the states of an object. Its numbers are opaque by the API's rules, and numbers
// that grow on every server there is.
func revision(p *Pod) uint64 {
	n, err := strconv.ParseUint(p.Object.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (b *bundle) addEvent(from Source, raw []byte, newer bool) {
	var e corev1.Event
	var err error
	if newer {
		var n eventsv1.Event
		if err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &n); err == nil {
			e = older(n)
		}
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &e)
	}
	if err != nil {
		b.mismatch(from, "Event", raw, err)
		return
	}
	b.event(from, &e)
}

// older is an event of events.k8s.io in the words of core v1.
func older(n eventsv1.Event) corev1.Event {
	e := corev1.Event{ObjectMeta: n.ObjectMeta, InvolvedObject: n.Regarding, Reason: n.Reason, Message: n.Note, Type: n.Type, Action: n.Action,
		Source: n.DeprecatedSource, FirstTimestamp: n.DeprecatedFirstTimestamp, LastTimestamp: n.DeprecatedLastTimestamp, Count: n.DeprecatedCount,
		EventTime: n.EventTime, ReportingController: n.ReportingController, ReportingInstance: n.ReportingInstance}
	if n.Series != nil {
		e.Series = &corev1.EventSeries{Count: n.Series.Count, LastObservedTime: n.Series.LastObservedTime}
	}
	return e
}

func (b *bundle) event(from Source, e *corev1.Event) {
	out := Event{Type: e.Type, Reason: e.Reason, Message: e.Message, About: about(e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name),
		Container: containerOf(e.InvolvedObject.FieldPath), Reporter: cmp.Or(e.ReportingController, e.Source.Component), Count: max(int(e.Count), 1),
		Recorded: seconds(e.CreationTimestamp.Time, APIClock), Source: from}
	clock := APIClock
	if out.Reporter == "kubelet" {
		clock = NodeClock
	}
	out.First, out.Last = seconds(e.FirstTimestamp.Time, clock), seconds(e.LastTimestamp.Time, clock)
	if !out.First.Known() {
		out.First = micros(e.EventTime, clock)
	}
	if e.Series != nil {
		out.Count, out.Last = max(int(e.Series.Count), 1), micros(e.Series.LastObservedTime, clock)
	}
	if !out.Last.Known() {
		out.Last = out.First
	}
	b.events = append(b.events, podEvent{Event: out, uid: string(e.InvolvedObject.UID), id: string(e.UID)})
}

func micros(t metav1.MicroTime, c Clock) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{At: t.UTC(), Error: time.Microsecond, Clock: c}
}

// A record is what Outrider's agent answers: JournalRecord of internal/agent/status, of this version
// or of another.
type record struct {
	Process   time.Time  `json:"process_started"`
	Container *time.Time `json:"container_started"`
	At        time.Time  `json:"at"`
	Entries   []struct {
		Kind   string        `json:"kind"`
		Name   string        `json:"name"`
		Why    string        `json:"why"`
		Begin  time.Duration `json:"begin_ns"`
		End    time.Duration `json:"end_ns"`
		Open   bool          `json:"open"`
		Ended  string        `json:"ended"`
		Failed bool          `json:"failed"`
	} `json:"entries"`
	Lost int `json:"lost"`
}

func (b *bundle) addJournal(folder string, from Source, raw []byte) {
	j, err := readJournal(raw, from)
	if err != nil {
		b.mismatch(from, "startup journal", raw, err)
		return
	}
	b.journals = append(b.journals, placedJournal{j, folder})
}

func readJournal(raw []byte, from Source) (*Journal, error) {
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	if r.Process.IsZero() {
		return nil, errors.New("process_started: missing; want what GET /startup of the agent answers")
	}
	exact := func(t time.Time) Time { return Time{At: t.UTC(), Error: time.Microsecond, Clock: NodeClock} }
	j := &Journal{Process: exact(r.Process), At: exact(r.At), Lost: r.Lost, Source: from}
	if r.Container != nil {
		j.Container = exact(*r.Container)
		j.Container.Error = 20 * time.Millisecond // the kernel's ticks, by which the agent finds it
	}
	for _, e := range r.Entries {
		out := JournalEntry{Kind: e.Kind, Name: e.Name, Why: e.Why, Begin: exact(r.Process.Add(e.Begin)), Outcome: e.Ended, Failed: e.Failed}
		if !e.Open {
			out.End = exact(r.Process.Add(e.End))
		}
		j.Entries = append(j.Entries, out)
	}
	return j, nil
}
