package gather

import (
	"cmp"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/described"
	"outrider.dev/internal/doctor/evidence/meant"
	"outrider.dev/internal/doctor/evidence/partial"
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

// addTexts adds the objects and events of the texts. A text with the name of a container's log is such a log.
func (b *bundle) addTexts() {
	gone := map[int]bool{}
	for _, t := range b.texts {
		if t.log < 0 || !b.isLog(t.folder, t.name) {
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
	b.addRows(gone) // before the events, of which a table does not name the namespace
	for _, t := range b.texts {
		if gone[t.log] {
			b.describedEvents(t, b.eventsOf(t), t.Events)
		}
	}
	b.eventPods()
	b.addNodes(gone)
	b.addAges()
	b.startingRows()
	b.loggedPods(gone)
	at := -1
	b.logs = slices.DeleteFunc(b.logs, func(l placedLog) bool {
		at++
		if gone[at] || l.dropped {
			b.addBeside(l, nil)
		}
		return gone[at] || l.dropped
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
	if unnamed := o.Pod != nil && o.Meta.Name == "" && t.log < 0; unnamed {
		o.Meta.Name, o.Meta.Namespace = t.name.pod, cmp.Or(o.Meta.Namespace, t.name.namespace)
		o.Pod.Name, o.Pod.Namespace = o.Meta.Name, o.Meta.Namespace
	}
	self := evidence.About(o.Kind, o.Meta.Namespace, cmp.Or(o.Meta.Name, partial.NoName))
	b.use(from)
	if o.Pod == nil {
		meta := o.Meta
		b.owners[self] = evidence.Owner{Kind: o.Kind, Name: meta.Name, Object: &meta}
		w := b.work(o.Kind, meta.Namespace, meta.Name)
		w.Source, w.Want, w.Have, w.Failing = evidence.Source{Kind: evidence.FromOwner, File: t.from.File, Line: o.Line}, o.Want, o.Have, o.Failing == "-"
		b.describedEvents(t, self, o.Events)
		return
	}
	p := partial.Pod(o.Pod, from, false)
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
			switch {
			case other.Omitted.Hooks && !other.Omitted.Spec && restarts(p) > restarts(other):
				b.pods[i].Pod = p // the same pod, described later
			case other.Omitted.Hooks:
				*other = *partial.Completed(other, p)
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
		b.events = append(b.events, podEvent{Aged: partial.Aged{Event: out, Oldest: e.First, Newest: e.Last}, text: true})
	}
}

// eventsOf returns the object of events that a description has, without the rest of it: the only pod that their messages
// name or, if they name none, the only one beside them. Empty: there is none, or several.
func (b *bundle) eventsOf(t placedText) string {
	var all []string
	for _, e := range t.Events {
		all = append(all, e.Message)
	}
	said := []byte(strings.NewReplacer("/", " ", "_", " ").Replace(strings.Join(all, "\n")))
	found := b.near(t.folder, name{})
	if assigned.Match(said) {
		found = slices.DeleteFunc(found, func(p *evidence.Pod) bool { return !partial.Names(said, p.Object.Name) })
	}
	if len(found) != 1 {
		return ""
	}
	return evidence.About("Pod", found[0].Object.Namespace, found[0].Object.Name)
}

// assigned matches the messages that name the pod of an event.
var assigned = regexp.MustCompile(`Successfully assigned \S+ \S+ to |\bin pod \S`)

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
	for _, e := range b.events {
		if k, namespace, n := e.Object(); k == kind && n == name && namespace != "" && !slices.Contains(found, namespace) {
			found = append(found, namespace)
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

// A row is a line of kubectl get pods, with its text.
type row struct {
	described.Row
	placedText
}

// addRows adds the lines of kubectl get pods, if there is nothing else: those of the pods that are meant. A pod of which
// there is no status has its line.
func (b *bundle) addRows(of map[int]bool) {
	var all []row
	var sentences []byte
	for _, t := range b.texts {
		for _, r := range t.Pods {
			if of[t.log] {
				all = append(all, row{r, t})
			}
		}
		if of[t.log] && len(sentences) < mostBegin {
			sentences = append(sentences, meant.Sentences(t.begin)...)
		}
	}
	unnamed := b.unnamedPod()
	if len(b.pods) > 0 && unnamed == nil || b.cannotCreate() {
		b.rowsOf(all)
		return
	}
	warned := b.warned()
	var candidates []meant.Candidate
	for i, r := range all {
		all[i].Namespace = cmp.Or(r.Namespace, b.namespaceOf("Pod", r.Name))
		all[i].Name = cmp.Or(r.Name, partial.NoName)
		c := meant.Candidate{Row: all[i].Row, Said: meant.Said(sentences, r.Name), Warned: warned[r.Name]}
		c.Logged = slices.ContainsFunc(b.logs, func(l placedLog) bool { return !l.dropped && l.pod == r.Name && r.Name != "" })
		candidates = append(candidates, c)
	}
	b.logged(candidates, of)
	chosen := meant.Choose(candidates)
	if unnamed != nil {
		b.nameAfter(unnamed, all, chosen)
		return
	}
	for _, i := range chosen {
		r := all[i]
		p := &evidence.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}, Spec: corev1.PodSpec{NodeName: r.Node}}, Source: r.evidence().Source,
			Omitted: evidence.Omitted{Meta: true, Spec: true, Hooks: true}, Row: r.evidence()}
		b.pod(r.folder, p)
	}
}

func (r row) evidence() *evidence.Row {
	from := evidence.Source{Kind: evidence.FromPod, File: r.from.File, Line: r.Line}
	return &evidence.Row{Source: from, Status: r.Status, Ready: r.Ready, Of: r.Of, Restarts: r.Restarts, Ended: r.Ended.Least, Age: r.Age.Least}
}

// rowsOf gives pods of which there is no status, as that was cut off, the lines that have it.
func (b *bundle) rowsOf(rows []row) {
	for _, p := range b.pods {
		s := p.Object.Status
		if len(s.ContainerStatuses)+len(s.InitContainerStatuses)+len(s.Conditions) > 0 || s.Phase != "" || s.Reason != "" || p.Row != nil {
			continue
		}
		for _, r := range rows {
			if r.Name == p.Object.Name && (r.Namespace == "" || p.Object.Namespace == "" || r.Namespace == p.Object.Namespace) {
				p.Row = r.evidence()
			}
		}
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
				if p.Row == nil && p.Object.Name == r.Name && (r.Namespace == "" || p.Object.Namespace == r.Namespace) && partial.Shows(r.Ready, r.Of, r.Restarts, p.Object.Status.ContainerStatuses) {
					p.Listed = max(p.Listed, r.Age.Least)
				}
			}
		}
	}
}
