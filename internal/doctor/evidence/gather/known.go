package gather

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/described"
	"outrider.dev/internal/doctor/evidence/meant"
	"outrider.dev/internal/doctor/evidence/partial"
	"outrider.dev/internal/doctor/evidence/pasted"
)

// cannotCreate reports whether a workload of the evidence says, or an event says of one, that its pods cannot be created.
func (b *bundle) cannotCreate() bool {
	for _, w := range b.works { // in any order: one is enough
		if w.Failing {
			return true
		}
	}
	for _, e := range b.events {
		if kind, _, _ := e.Object(); kind != "Pod" && slices.Contains(evidence.NotCreated, e.Reason) {
			return true
		}
	}
	for _, t := range b.texts {
		for _, e := range t.Events {
			if e.Kind != "Pod" && slices.Contains(evidence.NotCreated, e.Reason) {
				return true
			}
		}
	}
	return false
}

// warned returns the names of pods of which an event says that something fails.
func (b *bundle) warned() map[string]bool {
	out := map[string]bool{}
	for _, e := range b.events {
		if kind, _, name := e.Object(); kind == "Pod" && meant.Fails(e.Reason) {
			out[name] = true
		}
	}
	for _, t := range b.texts {
		for _, e := range t.Events {
			if e.Kind == "Pod" && meant.Fails(e.Reason) {
				out[e.Name] = true
			}
		}
	}
	return out
}

// logged marks the candidates that the lines of logs name.
func (b *bundle) logged(all []meant.Candidate, of map[int]bool) {
	if len(all) < 2 {
		return
	}
	for i, l := range b.logs {
		if l.dropped || of[i] || l.pod != "" || i > mostLoose {
			continue
		}
		head, err := l.Head(context.Background(), labelledBytes)
		if err != nil {
			continue
		}
		for j := range all {
			all[j].Logged = all[j].Logged || slices.Contains(pasted.PodsOf(head), all[j].Name)
		}
	}
}

// unnamedPod returns the only pod, if a person wrote down its states without its name; nil: there is another one, or none.
func (b *bundle) unnamedPod() *evidence.Pod {
	if len(b.pods) == 1 && b.pods[0].Object.Name == partial.NoName {
		return b.pods[0].Pod
	}
	return nil
}

// nameAfter names a pod after the only line of those that are meant, if that counts as many containers as it has.
func (b *bundle) nameAfter(p *evidence.Pod, rows []row, chosen []int) {
	if len(chosen) != 1 {
		return
	}
	r, status := rows[chosen[0]], p.Object.Status.ContainerStatuses
	ready := 0
	for _, s := range status {
		if s.Ready {
			ready++
		}
	}
	if r.Of != len(status) || r.Ready != ready || r.Name == partial.NoName {
		return
	}
	b.use(r.from)
	p.Object.Name, p.Object.Namespace = r.Name, cmp.Or(p.Object.Namespace, r.Namespace)
	p.Object.Spec.NodeName = cmp.Or(p.Object.Spec.NodeName, r.Node)
	for i := range p.Missing {
		if p.Missing[i].What == noNames {
			p.Missing[i].What = noLabels
		}
	}
}

// ownByName gives a pod whose object does not show its owner the Job or the CronJob of the evidence after which its name
// was generated.
func (b *bundle) ownByName(p *evidence.Pod) {
	if !p.Omitted.Meta || len(p.Object.OwnerReferences) > 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(b.works)) {
		w := b.works[key]
		if job := meant.JobOf(w.Kind, w.Name, p.Object.Name); job != "" && (w.Namespace == p.Object.Namespace || p.Object.Namespace == "") {
			p.Object.Namespace = w.Namespace
			p.Object.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, Controller: new(true)}}
			p.Object.Spec.RestartPolicy = cmp.Or(p.Object.Spec.RestartPolicy, corev1.RestartPolicyOnFailure) // or Never: a Job has no other
			return
		}
	}
}

// byEvents returns those of several pods whose events name the container after which a log is named; all if none do.
func (b *bundle) byEvents(pods []*evidence.Pod, l placedLog) []*evidence.Pod {
	if len(pods) < 2 {
		return pods
	}
	var out []*evidence.Pod
	for _, p := range pods {
		if slices.ContainsFunc(b.events, func(e podEvent) bool {
			return e.Container != "" && e.Container == cmp.Or(l.container, l.base) && e.About == evidence.About("Pod", p.Object.Namespace, p.Object.Name)
		}) {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return pods
	}
	return out
}

// noteUnread notes among what is missing of pods that are known by a line alone that the text beside it says of a failure
// what is in none of its pieces: such a pod is not well by its line.
func (b *bundle) noteUnread() {
	for _, t := range b.tickets {
		read := map[int]bool{}
		for _, p := range t.pieces {
			for i := range bytes.Count(p.Text, []byte("\n")) {
				read[p.Line+i] = true
			}
			for _, line := range p.Lines {
				read[line] = true
			}
		}
		var rest []byte
		number := 0
		for line := range bytes.Lines(t.begin) {
			if number++; !read[number] {
				rest = append(rest, line...)
			}
		}
		if !meant.TellsFailure(meant.Sentences(rest)) {
			continue
		}
		for _, p := range b.near(t.folder, name{}) {
			if p.Row != nil {
				b.missing = append(b.missing, placedMissing{p, evidence.Missing{Kind: evidence.FromLog, What: path.Base(t.from.File), Why: "a part of it is not used"}})
			}
		}
	}
}

// The parts of a pod's object that a person left out.
const (
	noNames  = "the name of the pod, its labels and annotations"
	noLabels = "the labels and annotations of the pod"
)

// mostOfEvents is the number of pods that are known by their events alone.
const mostOfEvents = 50

// eventPods adds the pods that events are about, if the evidence has nothing else of any pod.
func (b *bundle) eventPods() {
	if len(b.pods) > 0 || b.cannotCreate() {
		return
	}
	var events []evidence.Event
	for _, e := range b.events {
		events = append(events, e.Event)
	}
	for _, of := range b.listed(meant.Warned(events)) {
		_, namespace, name := of[0].Object()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		pod.Spec.Containers = meant.Units(of, &pod.Status)
		p := partial.Pod(pod, of[0].Source, true)
		p.Omitted.Units, p.Omitted.Meta = true, true
		b.pod(b.folders[of[0].Source.File], p)
	}
}

// listed returns the events of each pod, in the order of their names, up to a limit.
func (b *bundle) listed(all map[string][]evidence.Event) (out [][]evidence.Event) {
	for _, about := range slices.Sorted(maps.Keys(all)) {
		if len(out) < mostOfEvents {
			out = append(out, all[about])
		}
	}
	return out
}

// loggedPods adds the pods that commands above logs, paths of logs or their lines name, if the evidence has nothing else of
// any pod; or else one without a name, for logs that say what failed. Beside lines of kubectl get pods alone, they may name a
// pod of the same workload that is gone. of has the logs that are texts of kubectl.
func (b *bundle) loggedPods(of map[int]bool) {
	rows := len(b.pods)
	if slices.ContainsFunc(b.pods, func(q placed) bool { return q.Row == nil }) || b.cannotCreate() {
		return
	}
	k := known{pods: map[string]*corev1.Pod{}}
	for i := range b.logs {
		l := &b.logs[i]
		if of[i] || l.dropped || l.empty {
			continue
		}
		pod, container := l.pod, l.container
		if pod == "" && l.First == 0 && i < mostHeads {
			pod, container = k.labelled(l)
		}
		if rows > 0 && (container == "" || !b.replaced(rows, pod)) {
			continue
		}
		if pod != "" && partial.IsLabel.MatchString(cmp.Or(container, "app")) {
			k.add(b, l, pod, cmp.Or(container, partial.NoContainer))
		}
	}
	if len(b.pods) == 0 {
		k.unnamed(b, of)
	}
	for _, q := range b.pods[rows:] {
		*q.Pod = *partial.Pod(q.Object, q.Source, true)
		q.Omitted.Units = true
	}
}

// replaced reports whether one of the first pods is of the same workload as a pod of which there is no line.
func (b *bundle) replaced(first int, pod string) bool {
	for _, t := range b.texts {
		if slices.ContainsFunc(t.Pods, func(r described.Row) bool { return r.Name == pod }) {
			return false
		}
	}
	return slices.ContainsFunc(b.pods[:first], func(q placed) bool {
		at := strings.LastIndexByte(q.Object.Name, '-')
		return at > 0 && strings.HasPrefix(pod, q.Object.Name[:at+1])
	})
}

// labelledBytes is how much of a log is read for what its lines say of themselves.
const labelledBytes = 16 << 10

// mostHeads is the number of logs of which the first lines are read for the pod that they name.
const mostHeads = 200

// known has the pods that logs name, by name.
type known struct{ pods map[string]*corev1.Pod }

func (k known) labelled(l *placedLog) (pod, container string) {
	head, err := l.Head(context.Background(), labelledBytes)
	if err != nil {
		return "", ""
	}
	pod, container, _ = pasted.Labelled(head)
	return pod, container
}

// add adds a container of a pod of which there is a log.
func (k known) add(b *bundle, l *placedLog, pod, container string) {
	p := k.pods[pod]
	if p == nil {
		if len(k.pods) == mostOfEvents {
			return
		}
		p = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: pod}}
		k.pods[pod] = p
		b.pod(l.folder, &evidence.Pod{Object: p, Source: l.Source})
	}
	if !slices.ContainsFunc(p.Spec.Containers, func(s corev1.Container) bool { return s.Name == container }) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: container})
	}
}

// unnamed adds a pod without a name for the logs of a folder, if one of these says what failed.
func (k known) unnamed(b *bundle, of map[int]bool) {
	for i := range b.logs {
		l := &b.logs[i]
		end := path.Ext(l.Source.File)
		if of[i] || l.dropped || l.empty || l.First > 0 || i >= mostHeads || !partial.IsLabel.MatchString(l.base) || len(l.base) > 63 {
			continue
		}
		head, err := l.Head(context.Background(), mostBegin)
		if err == nil && (meant.TellsFailure(head) || end == ".log" && len(b.pods) > 0) {
			k.add(b, l, partial.NoName, l.base)
		}
	}
}
