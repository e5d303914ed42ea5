package gather

import (
	"cmp"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/described"
)

// A placedText is a text of kubectl, with its folder. It may turn out to be the log of a container that wrote such a text.
type placedText struct {
	described.Text
	from   evidence.Source
	folder string
	name   name
	log    int    // index in logs
	begin  []byte // the first bytes of the text
}

// mostBegin is the number of bytes of a text in which containers are looked for by their names.
const mostBegin = 64 << 10

// text reads what kubectl printed for people.
func (r *reader) text(in io.Reader, open opener, folder string, from evidence.Source) {
	data, err := io.ReadAll(io.LimitReader(in, r.o.Objects+1))
	switch {
	case err != nil:
		r.unused(from, "%v", err)
		return
	case int64(len(data)) > r.o.Objects:
		r.addLog(open, folder, from, 0, -1)
		return
	}
	t := described.Read(data)
	r.addLog(open, folder, from, 0, -1)
	if !t.Empty() {
		r.held += int64(4 * len(data))
		r.texts = append(r.texts, placedText{t, from, folder, nameOf(from.File), len(r.logs) - 1, data[:min(len(data), mostBegin)]})
	}
}

// objectsIn returns the part of a text that has objects: from the first line of one on, up to the end of a block of Markdown.
func objectsIn(text []byte) []byte {
	at := firstObject.FindIndex(text)
	if at == nil {
		return nil
	}
	text = text[at[0]:]
	if end := fence.FindIndex(text); end != nil {
		text = text[:end[0]]
	}
	return text
}

var (
	firstObject = regexp.MustCompile(`(?m)^(?:apiVersion: v1[ \t]*\r?\n(?:kind|items|metadata):|kind: (?:Pod|List)[ \t]*\r?$|(?:init)?[cC]ontainerStatuses:[ \t]*\r?$)`)
	fence       = regexp.MustCompile("(?m)^(?:```|~~~)")
)

// addTexts adds the objects and events of the texts. A text with the name of a container's log is such a log.
func (b *bundle) addTexts() {
	gone := map[int]bool{}
	for _, t := range b.texts {
		isLog := slices.ContainsFunc(b.near(t.folder, t.name), func(p *evidence.Pod) bool { return t.name.containerIn(p) != nil })
		if !isLog {
			gone[t.log] = true
		}
	}
	for _, t := range b.texts {
		if gone[t.log] {
			for _, o := range t.Objects {
				b.describedObject(t, o)
			}
		}
	}
	for _, t := range b.texts {
		if gone[t.log] {
			b.describedEvents(t, "", t.Events)
		}
	}
	b.addRows(gone)
	b.addNodes(gone)
	b.addAges()
	at := -1
	b.logs = slices.DeleteFunc(b.logs, func(l placedLog) bool {
		if at++; gone[at] {
			b.addBeside(l, nil)
		}
		return gone[at]
	})
	b.looseLogs(func(p *evidence.Pod) []byte {
		i := slices.IndexFunc(b.texts, func(t placedText) bool { return t.from.File == p.Source.File })
		if i < 0 {
			return nil
		}
		return b.texts[i].begin
	})
}

// describedObject adds a pod or a workload. A pod whose object is there too keeps that, which shows more.
func (b *bundle) describedObject(t placedText, o described.Object) {
	from := evidence.Source{Kind: evidence.FromPod, File: t.from.File, Line: o.Line}
	self := evidence.About(o.Kind, o.Meta.Namespace, cmp.Or(o.Meta.Name, NoName))
	if o.Pod == nil {
		meta := o.Meta
		b.owners[self] = evidence.Owner{Kind: o.Kind, Name: meta.Name, Object: &meta}
		w := b.work(o.Kind, meta.Namespace, meta.Name)
		w.Source, w.Want, w.Have, w.Failing = evidence.Source{Kind: evidence.FromOwner, File: t.from.File, Line: o.Line}, o.Want, o.Have, o.Failing == "-"
		b.describedEvents(t, self, o.Events)
		return
	}
	p := shortened(o.Pod, from, false)
	p.Omitted.Hooks = true
	if !o.Whole {
		p.Missing = append(p.Missing, evidence.Missing{Kind: evidence.FromPod, What: "the end of the description", Why: "the text was cut off: it shows no events"})
	}
	for _, c := range p.Containers {
		if known, there := o.Unit[c.Name]; there && !known.Restarts && len(c.Runs) > 0 {
			p.Missing = append(p.Missing, evidence.Missing{Kind: evidence.FromPod, What: "the restarts of container " + c.Name, Why: "the text was cut off: there are as many as it shows, or more"})
		}
	}
	for i := range b.pods {
		if other := b.pods[i].Pod; other.Object.Name == p.Object.Name && (other.Object.Namespace == p.Object.Namespace || p.Object.Namespace == "") {
			b.pods[i].folders = append(b.pods[i].folders, t.folder)
			if other.Omitted.Hooks && !other.Omitted.Spec && restarts(p) > restarts(other) {
				b.pods[i].Pod = p // the same pod, described later
			}
			b.describedEvents(t, evidence.About("Pod", other.Object.Namespace, other.Object.Name), o.Events)
			return
		}
	}
	b.held += int64(containerSize * len(p.Containers))
	b.pod(t.folder, p)
	b.describedEvents(t, self, o.Events)
}

func restarts(p *evidence.Pod) (sum int) {
	for _, c := range p.Containers {
		sum += max(c.Restarts, 0)
	}
	return sum
}

// describedEvents adds events of a text, of the object self unless they name theirs. They have ages instead of times.
func (b *bundle) describedEvents(t placedText, self string, events []described.Event) {
	for _, e := range events {
		to := self
		if e.Name != "" {
			to = evidence.About(e.Kind, cmp.Or(e.Namespace, b.namespaceOf(e.Kind, e.Name)), e.Name)
		}
		out := evidence.Event{Reason: e.Reason, Message: e.Message, About: to, Container: e.Container, Reporter: e.From, Count: e.Count, Source: evidence.Source{Kind: evidence.FromEvent, File: t.from.File, Line: e.Line}}
		b.events = append(b.events, podEvent{Event: out, text: true, first: e.First, last: e.Last})
	}
}

// namespaceOf returns the namespace of the only object of that kind and name; empty: it is not known. A table of events
// has none.
func (b *bundle) namespaceOf(kind, name string) string {
	var found []string
	for _, p := range b.pods {
		if kind == "Pod" && p.Object.Name == name && !slices.Contains(found, p.Object.Namespace) {
			found = append(found, p.Object.Namespace)
		}
		for _, r := range p.Object.OwnerReferences {
			if r.Kind == kind && r.Name == name && !slices.Contains(found, p.Object.Namespace) {
				found = append(found, p.Object.Namespace)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b.works)) {
		if w := b.works[key]; w.Kind == kind && w.Name == name && !slices.Contains(found, w.Namespace) {
			found = append(found, w.Namespace)
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return ""
}

// addRows adds the lines of kubectl get pods, if there is nothing else. Of several, those that are well are left out,
// unless all are; then those that never restarted.
func (b *bundle) addRows(of map[int]bool) {
	if len(b.pods) > 0 || len(b.works) > 0 {
		return
	}
	type row struct {
		described.Row
		placedText
	}
	var all, ill, restarted []row
	for _, t := range b.texts {
		for _, r := range t.Pods {
			if !of[t.log] {
				continue
			}
			all = append(all, row{r, t})
			if !(r.Ready == r.Of && r.Status == "Running" || r.Status == "Completed") {
				ill = append(ill, row{r, t})
			}
			if r.Restarts > 0 {
				restarted = append(restarted, row{r, t})
			}
		}
	}
	switch {
	case len(ill) > 0:
		all = ill
	case len(restarted) > 0 && len(b.logs) > len(of): // with logs, which are of the one that restarted
		all = restarted
	}
	for _, r := range all {
		p := &evidence.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}, Source: evidence.Source{Kind: evidence.FromPod, File: r.from.File, Line: r.Line},
			Omitted: evidence.Omitted{Meta: true, Spec: true, Hooks: true}, Row: &evidence.Row{Status: r.Status, Ready: r.Ready, Of: r.Of, Restarts: r.Restarts, Age: r.Age.Least}}
		b.pod(r.folder, p)
	}
}

// addNodes gives the pods the lines of kubectl get nodes about their nodes.
func (b *bundle) addNodes(of map[int]bool) {
	for _, t := range b.texts {
		for _, n := range t.Nodes {
			for _, p := range b.pods {
				if of[t.log] && p.Object.Spec.NodeName == n.Name {
					p.Node = &evidence.NodeRow{Status: n.Status, Age: n.Age.Least, Source: evidence.Source{Kind: evidence.FromNode, File: t.from.File, Line: n.Line}}
				}
			}
		}
	}
}

// addAges gives the pods their age in the lines of kubectl get pods that show the state of their objects.
func (b *bundle) addAges() {
	for _, t := range b.texts {
		for _, r := range t.Pods {
			for _, p := range b.pods {
				if p.Row == nil && p.Object.Name == r.Name && (r.Namespace == "" || p.Object.Namespace == r.Namespace) && shows(r, p.Object.Status.ContainerStatuses) {
					p.Listed = max(p.Listed, r.Age.Least)
				}
			}
		}
	}
}

// shows reports whether a line of kubectl get pods has the state of some containers.
func shows(r described.Row, all []corev1.ContainerStatus) bool {
	ready, restarts := 0, 0
	for _, c := range all {
		restarts += int(c.RestartCount)
		if c.Ready {
			ready++
		}
	}
	return len(all) == r.Of && ready == r.Ready && restarts == r.Restarts
}

// ofContainer finds the container of an event of a text whose message names none: the only one that has the probe that
// failed, or the image, or that waits.
func ofContainer(p *evidence.Pod, e *evidence.Event) {
	if e.Container != "" {
		return
	}
	var probed, atPort, others []string
	for _, c := range slices.Concat(p.Object.Spec.InitContainers, p.Object.Spec.Containers) {
		if probe := probeOf(c, e.Message); probe != nil {
			probed = append(probed, c.Name)
			if at := portOf(probe); at != "" && strings.Contains(e.Message, at) {
				atPort = append(atPort, c.Name)
			}
		}
		if c.Image != "" && strings.Contains(e.Message, `"`+c.Image+`"`) {
			others = append(others, c.Name)
		}
	}
	if len(others) == 0 && (e.Reason == "Failed" || e.Reason == "BackOff") {
		for _, c := range p.Containers {
			if c.Waiting != nil && c.Waiting.Reason != "PodInitializing" {
				others = append(others, c.Name)
			}
		}
	}
	for _, found := range [][]string{atPort, probed, others} {
		if len(found) == 1 {
			e.Container = found[0]
			return
		}
	}
}

// probeOf returns the probe of a container whose failure a message reports; nil: it has none.
func probeOf(c corev1.Container, message string) *corev1.Probe {
	switch {
	case strings.HasPrefix(message, "Liveness probe "):
		return c.LivenessProbe
	case strings.HasPrefix(message, "Readiness probe "):
		return c.ReadinessProbe
	case strings.HasPrefix(message, "Startup probe "):
		return c.StartupProbe
	}
	return nil
}

// portOf returns the port of a probe as it stands in the messages of its failures; empty: it has none, or one with a name.
func portOf(p *corev1.Probe) string {
	switch {
	case p.HTTPGet != nil && p.HTTPGet.Port.IntValue() > 0:
		return ":" + p.HTTPGet.Port.String() + "/"
	case p.TCPSocket != nil && p.TCPSocket.Port.IntValue() > 0:
		return ":" + p.TCPSocket.Port.String() + ":"
	}
	return ""
}

// dated places the events of a text. The time of the text is the start of a container plus the age of the event that
// reports it. If no such event is there, or if they contradict each other, the times stay unknown, and the events keep
// the order of the lines.
func dated(p *evidence.Pod, events []podEvent) {
	var from, until time.Time // of the text
	for _, e := range events {
		c := p.Container(e.Container)
		if c == nil || e.Reason != "Started" || e.Count != c.Restarts+1 || e.last.Error == 0 {
			continue
		}
		r := c.Last()
		if r == nil || !r.Started.Known() || r.Number != c.Restarts {
			continue
		}
		begin, end := r.Started.At.Add(e.last.Least), r.Started.Latest().Add(e.last.Least+e.last.Error)
		if from.IsZero() || begin.After(from) {
			from = begin
		}
		if until.IsZero() || end.Before(until) {
			until = end
		}
	}
	if from.IsZero() || !from.Before(until) {
		return
	}
	p.Taken = evidence.Time{At: from, Error: until.Sub(from), Clock: evidence.NodeClock}
	place := func(a described.Age) evidence.Time {
		if a.Error == 0 {
			return evidence.Time{}
		}
		begin := from.Add(-a.Least - a.Error)
		return evidence.Time{At: begin, Error: until.Add(-a.Least).Sub(begin), Clock: evidence.NodeClock}
	}
	for i := range events {
		if events[i].Reporter == "kubelet" {
			events[i].First, events[i].Last = place(events[i].first), place(events[i].last)
		}
	}
}
