package gather

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/described"
	"outrider.dev/internal/doctor/evidence/partial"
)

// mostKinds is the number of kinds of a file that a note names.
const mostKinds = 5

// use notes that something of a file is used.
func (b *bundle) use(from evidence.Source) { b.used[from.File] = true }

// noteUnused notes each file of which nothing is used, and for which no other note gives the reason.
func (r *reader) noteUnused(set *evidence.Set) {
	for _, u := range r.left {
		r.use(u.Source)
	}
	for _, e := range set.Events() {
		r.use(e.Source)
	}
	for _, p := range set.Pods {
		if p.Row != nil {
			r.use(p.Row.Source)
		}
		if p.Node != nil {
			r.use(p.Node.Source)
		}
		if p.Journal != nil {
			r.use(p.Journal.Source)
		}
	}
	n := len(r.left)
	for _, file := range r.files {
		if !r.used[file] {
			r.unused(evidence.Source{Kind: evidence.FromLog, File: file}, "%s", r.whyUnused(file))
		}
	}
	set.Unused = append(set.Unused, r.left[n:]...)
}

// whyUnused returns the reason why a file without a note is not used.
func (r *reader) whyUnused(file string) string {
	if kinds := r.kinds[file]; len(kinds) > 0 {
		return fmt.Sprintf("it has objects of other kinds than a pod, its events and its owners (%s)", strings.Join(kinds, ", "))
	}
	for _, t := range r.texts {
		if t.from.File != file || len(t.Pods)+len(t.Nodes) == 0 {
			continue
		}
		named, placed := false, false // whether the rest of the evidence says which pod it has, and on which node
		for _, p := range r.pods {
			if slices.ContainsFunc(t.Pods, func(row described.Row) bool { return p.Object.Name == row.Name }) {
				return "its line about the pod says no more than the rest of the evidence"
			}
			named, placed = named || p.Object.Name != partial.NoName, placed || p.Object.Spec.NodeName != ""
		}
		switch {
		case len(t.Pods) > 0 && !named:
			return "its lines name pods, and the rest of the evidence does not say of which pod it is"
		case len(t.Pods) > 0:
			return "its lines are about other pods"
		case !placed:
			return "its lines are about nodes, and the evidence does not say on which node the pod is"
		}
		return "its lines are about other nodes than the pod's"
	}
	for _, t := range r.texts {
		if t.from.File == file && len(t.Events) > 0 {
			return "its events are about other objects, or do not say about which: kubectl get events -o wide, or the description of the pod, does"
		}
	}
	for _, t := range r.tickets {
		if t.from.File == file && len(t.pieces) == 0 {
			return "it has sentences, and nothing that kubectl printed: put it in a block of its own, below the command"
		}
	}
	if slices.Contains(objectEnds, path.Ext(file)) {
		return "it has no object of a pod, nor an event about one of the evidence"
	}
	return "nothing in it is of a pod of the evidence, or of its events"
}
