package gather

import (
	"context"
	"io"
	"path"
	"slices"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/attribution"
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

// streams reads the logs of several containers, of which each line names its own.
func (r *reader) streams(in io.Reader, open opener, folder string, from evidence.Source) {
	data, err := io.ReadAll(io.LimitReader(in, mostStreams+1))
	pieces := pasted.Streams(data)
	if err != nil || len(data) > mostStreams || len(pieces) == 0 {
		r.addLog(open, folder, from, 0, -1)
		return
	}
	r.held += int64(2 * len(data))
	r.tickets = append(r.tickets, placedTicket{from: from, folder: folder, name: nameOf(from.File), log: -1, pieces: pieces})
}

// mostStreams is the number of bytes of logs of several containers in one file that are read.
const mostStreams = 16 << 20

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
		b.of, b.words = n, p.Words
		b.parse(t.folder, t.from.File, p.Document())
		b.of, b.words = name{}, false
	case pasted.Text:
		read := described.Read(p.Padded())
		if others {
			read.Objects = nil
		}
		read.Pods = append(read.Pods, p.Rows...)
		b.texts = append(b.texts, placedText{read, t.from, t.folder, n, -1, t.begin})
	case pasted.Log:
		b.logs = append(b.logs, placedLog{Log: partial.Log(t.from, p), name: n, folder: t.folder})
	}
}

// lines returns a log as package attribution reads it.
func (b *bundle) lines(l *placedLog) attribution.Log {
	out := attribution.Log{Log: l.Log, Heading: l.heading, Command: l.container != "" || l.heading == "" && (l.pod != "" || l.First > 0)}
	for _, p := range b.pods[:min(len(b.pods), mostPeers)] {
		out.Others = append(out.Others, p.Object.Name)
	}
	return out
}

// match gives a log what was found of it, and returns the container, or nil if nothing was found.
func (l *placedLog) match(m attribution.Match, ok bool) *evidence.Container {
	c := m.Container
	if !ok {
		return nil
	}
	switch m.Run {
	case pasted.Before:
		l.previous = true
	case pasted.Current:
		l.previous = false
	case pasted.First:
		if c.Restarts > 0 && c.Run(0) == nil { // of which nothing else is known
			return nil
		}
		l.run, l.previous = 0, c.Restarts > 0
	case pasted.Unsaid:
		if l.run < 0 && !l.previous && (l.heading != "" || m.Why != "") {
			l.run = attribution.RunOf(context.Background(), c, l.Log)
			l.previous = l.run >= 0 && l.run < c.Restarts
		}
	}
	l.taken = m.Why
	return c
}

// A leftLog is a log of which no container is known, and why not.
type leftLog struct {
	placedLog
	why string
}

// giveLeft gives the logs that are left to containers that alone have none. The others are evidence beside the pods.
func (b *bundle) giveLeft(ctx context.Context, left []leftLog) {
	of := map[*evidence.Pod]int{}
	for _, l := range left {
		for _, p := range b.near(l.folder, l.name) {
			of[p]++
		}
	}
	for _, l := range left {
		if pods := b.near(l.folder, l.name); len(pods) == 1 && of[pods[0]] == 1 {
			m, ok := attribution.Left(ctx, pods[0], b.lines(&l.placedLog))
			if c := l.match(m, ok); c != nil {
				b.give(pods[0], l.placedLog, c)
				continue
			}
		}
		if head, err := l.Head(ctx, mostBegin); err == nil && l.First == 0 && pasted.IsProse(head) {
			b.notRead(l.placedLog, "it has sentences, and nothing that a program printed")
			continue
		}
		l.unnamed = true
		b.notRead(l.placedLog, "%s", l.why)
	}
}
