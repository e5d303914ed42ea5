package gather

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/evidence"
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
		for _, row := range t.Pods {
			if slices.ContainsFunc(r.pods, func(p placed) bool { return p.Object.Name == row.Name }) {
				return "its line about the pod says no more than the rest of the evidence"
			}
		}
		return "its lines are about other pods, or other nodes"
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
