// Package decoded reads single objects that are evidence of a pod: events of both APIs, and the startup journal of
// Outrider's agent.
package decoded

import (
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"outrider.dev/internal/doctor/evidence"
)

// Event returns an event as evidence. Its times are by the clock of its reporter.
func Event(from evidence.Source, e *corev1.Event) evidence.Event {
	out := evidence.Event{Reason: e.Reason, Message: e.Message, About: evidence.About(e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name),
		Container: containerOf(e.InvolvedObject.FieldPath), Reporter: cmp.Or(e.ReportingController, e.Source.Component), Count: max(int(e.Count), 1),
		Recorded: evidence.Second(e.CreationTimestamp.Time, evidence.APIClock), Source: from}
	clock := evidence.APIClock
	if out.Reporter == "kubelet" {
		clock = evidence.NodeClock
	}
	out.First, out.Last = evidence.Second(e.FirstTimestamp.Time, clock), evidence.Second(e.LastTimestamp.Time, clock)
	if !out.First.Known() {
		out.First = micros(e.EventTime, clock)
	}
	if e.Series != nil {
		out.Count, out.Last = max(int(e.Series.Count), 1), micros(e.Series.LastObservedTime, clock)
	}
	if !out.Last.Known() {
		out.Last = out.First
	}
	return out
}

// Older converts an event of events.k8s.io to an event of core v1.
func Older(n eventsv1.Event) corev1.Event {
	e := corev1.Event{ObjectMeta: n.ObjectMeta, InvolvedObject: n.Regarding, Reason: n.Reason, Message: n.Note,
		Source: n.DeprecatedSource, FirstTimestamp: n.DeprecatedFirstTimestamp, LastTimestamp: n.DeprecatedLastTimestamp, Count: n.DeprecatedCount,
		EventTime: n.EventTime, ReportingController: n.ReportingController}
	if n.Series != nil {
		e.Series = &corev1.EventSeries{Count: n.Series.Count, LastObservedTime: n.Series.LastObservedTime}
	}
	return e
}

func micros(t metav1.MicroTime, c evidence.Clock) evidence.Time {
	if t.IsZero() {
		return evidence.Time{}
	}
	return evidence.Time{At: t.UTC(), Error: time.Microsecond, Clock: c}
}

// A record is the response of Outrider's agent to GET /startup: JournalRecord of internal/core/agent/status. The
// agent may have another version.
type record struct {
	Process time.Time `json:"process_started"`
	Entries []struct {
		Kind   string        `json:"kind"`
		Name   string        `json:"name"`
		Begin  time.Duration `json:"begin_ns"`
		End    time.Duration `json:"end_ns"`
		Open   bool          `json:"open"`
		Failed bool          `json:"failed"`
	} `json:"entries"`
}

// Journal reads what the agent answers to GET /startup. It fails on what is no such answer.
func Journal(raw []byte, from evidence.Source) (*evidence.Journal, error) {
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	if r.Process.IsZero() {
		return nil, errors.New("process_started: missing; want what GET /startup of the agent answers")
	}
	exact := func(t time.Time) evidence.Time {
		return evidence.Time{At: t.UTC(), Error: time.Microsecond, Clock: evidence.NodeClock}
	}
	j := &evidence.Journal{Source: from}
	for _, e := range r.Entries {
		out := evidence.JournalEntry{Kind: e.Kind, Name: e.Name, Begin: exact(r.Process.Add(e.Begin)), Failed: e.Failed}
		if !e.Open {
			out.End = exact(r.Process.Add(e.End))
		}
		j.Entries = append(j.Entries, out)
	}
	return j, nil
}

// containerOf returns the container in the field path of an event, such as spec.containers{app}.
func containerOf(fieldPath string) string {
	_, name, ok := strings.Cut(fieldPath, "{")
	if !ok {
		return ""
	}
	return strings.TrimSuffix(name, "}")
}

// Asks returns the sums of the limits and the requests of a pod's containers.
func Asks(spec corev1.PodSpec) corev1.ResourceList {
	out := corev1.ResourceList{}
	add := func(name string, q resource.Quantity) {
		sum := out[corev1.ResourceName(name)]
		sum.Add(q)
		out[corev1.ResourceName(name)] = sum
	}
	for _, c := range spec.Containers {
		for name, q := range c.Resources.Limits { // in any order: sums
			add("limits."+string(name), q)
		}
		for name, q := range c.Resources.Requests { // in any order: sums
			add("requests."+string(name), q)
			add(string(name), q)
		}
	}
	return out
}

// Revision returns the resourceVersion of a pod as a number; the larger one is newer. By the API's rules it is
// opaque, but every known API server uses a growing number.
func Revision(p *evidence.Pod) uint64 {
	n, err := strconv.ParseUint(p.Object.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Selector returns the selector of the pods of a workload.
func Selector(object metav1.Object) (string, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return "", err
	}
	var o struct {
		Spec struct {
			Selector *metav1.LabelSelector `json:"selector"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return "", err
	}
	s, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
	if err != nil || s.Empty() || s == labels.Nothing() {
		return "", errors.New("it selects no pods")
	}
	return s.String(), nil
}
