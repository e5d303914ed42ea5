package gather

import (
	"cmp"
	"context"
	"io"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/described"
	"outrider.dev/internal/doctor/evidence/partial"
	"outrider.dev/internal/doctor/evidence/pasted"
)

// noteEnds are the file name extensions of what people write.
var noteEnds = []string{".md", ".markdown", ".adoc", ".rst", ".org", ".eml"}

// A placedTicket is a text of people with pieces of evidence, with its folder. Unless its name says that people wrote it,
// it may turn out to be the log of a container that wrote such a text.
type placedTicket struct {
	pieces []pasted.Piece
	from   evidence.Source
	folder string
	name   name
	log    int // index in logs; -1: it is no log
	begin  []byte
}

// ticket reads a text in which people put what they copied.
func (r *reader) ticket(in io.Reader, open opener, folder string, from evidence.Source) {
	data, err := io.ReadAll(io.LimitReader(in, pasted.Most+1))
	notes := slices.Contains(noteEnds, path.Ext(from.File))
	switch {
	case err != nil:
		r.unused(from, "%v", err)
		return
	case len(data) > pasted.Most && notes:
		r.unused(from, "notes of more than %d KiB are not read: give what is evidence in files of its own", pasted.Most>>10)
		return
	}
	t := placedTicket{from: from, folder: folder, name: nameOf(from.File), log: -1, begin: data[:min(len(data), mostBegin)]}
	if len(data) <= pasted.Most {
		t.pieces = pasted.Read(data)
	}
	if !notes {
		r.addLog(open, folder, from, 0, -1)
		t.log = len(r.logs) - 1
	}
	r.held += int64(4 * len(data))
	r.tickets = append(r.tickets, t)
}

// addTickets adds the pieces of the tickets, as if each was a file.
func (b *bundle) addTickets() {
	others := len(b.pods)+len(b.parts)+len(b.works) > 0 // which count more than what notes say of whole pods
	for _, t := range b.tickets {
		if t.log >= 0 {
			if b.isLog(t.folder, t.name) {
				continue
			}
			b.logs[t.log].dropped = true
		}
		for _, p := range t.pieces {
			b.addPiece(t, p, others && t.log < 0)
		}
	}
}

// isLog reports whether a file has the name of a container's log.
func (b *bundle) isLog(folder string, n name) bool {
	return slices.ContainsFunc(b.near(folder, n), func(p *evidence.Pod) bool { return n.containerIn(p) != nil })
}

// addPiece adds a piece. If the evidence has other pods, notes add no further one.
func (b *bundle) addPiece(t placedTicket, p pasted.Piece, others bool) {
	n := name{namespace: p.Namespace, pod: p.Pod, container: p.Container, previous: p.Previous, run: -1, heading: p.Heading, base: p.Of}
	switch p.Form {
	case pasted.Objects, pasted.States:
		if others && p.Whole() {
			return
		}
		b.of = n
		b.parse(t.folder, t.from.File, p.Document())
		b.of = name{}
	case pasted.Text:
		read := described.Read(p.Padded())
		if others {
			read.Objects = nil
		}
		b.texts = append(b.texts, placedText{read, t.from, t.folder, n, -1, t.begin})
	case pasted.Log:
		b.logs = append(b.logs, placedLog{Log: partial.Log(t.from, p), name: n, folder: t.folder})
	}
}

// loggedPods adds the pods that the commands above logs name, if the evidence has nothing else of any pod.
func (b *bundle) loggedPods() {
	if len(b.pods)+len(b.works) > 0 {
		return
	}
	pods := map[string]*corev1.Pod{}
	for _, l := range b.logs {
		if l.First == 0 || l.pod == "" || !partial.IsLabel.MatchString(cmp.Or(l.container, "app")) {
			continue
		}
		p := pods[l.pod]
		if p == nil {
			p = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.pod}}
			pods[l.pod] = p
			b.pod(l.folder, &evidence.Pod{Object: p, Source: l.Source})
		}
		if c := cmp.Or(l.container, partial.NoContainer); !slices.ContainsFunc(p.Spec.Containers, func(s corev1.Container) bool { return s.Name == c }) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
		}
	}
	for _, q := range b.pods {
		*q.Pod = *partial.Pod(q.Object, q.Source, true)
		q.Omitted.Units = true
	}
}

// meant returns the container of a pod that a log means by its name in another style, by its heading, or by what its lines
// say of themselves, and sets the run of the log. It returns nil if none of them does.
func (b *bundle) meant(p *evidence.Pod, l *placedLog) *evidence.Container {
	of := partial.NamesOf(p)
	container, run, ok := "", pasted.Unsaid, false
	if l.heading != "" {
		container, run, ok = of.ByHeading(l.heading)
	} else if l.container == "" && l.pod == "" && l.First == 0 {
		container, run, ok = of.ByFile(path.Base(l.Source.File))
	}
	if !ok && l.heading == "" && l.container == "" {
		head, err := l.Head(context.Background(), labelledBytes)
		pod, labelled, has := pasted.Labelled(head)
		if err == nil && has && (pod == "" || pod == p.Object.Name) {
			container, ok = labelled, true
			run = pasted.RunOf(path.Base(l.Source.File))
		}
	}
	c := p.Container(container)
	if !ok || c == nil {
		return nil
	}
	switch run {
	case pasted.Before:
		l.previous = true
	case pasted.Current:
		l.previous = false
	case pasted.First:
		if c.Restarts > 0 && c.Run(0) == nil { // of which nothing else is known
			return nil
		}
		l.run, l.previous = 0, c.Restarts > 0
	}
	return c
}

// labelledBytes is how much of a log is read for what its lines say of themselves.
const labelledBytes = 16 << 10
