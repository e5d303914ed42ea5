package build

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// Limits for the objects of one namespace, in which tenants can create any number.
const (
	maxIgnored    = 100  // objects that are reported individually
	maxConsidered = 1000 // objects that are compared with workloads; those that should forbid something come first
)

// ignored contains the objects that only other meshes support.
type ignored struct {
	root  string                              // the root namespace
	in    multimap[string, *mesh.IgnoredSpec] // objects by namespace
	stale set[string]                         // namespaces to be computed again
	table persistent.Table[string, *mesh.IgnoredList]
}

func (x *ignored) set(s *mesh.IgnoredSpec, present bool) {
	x.in.set(s.Namespace, s, present)
	x.stale.add(s.Namespace)
}

// markOf marks the namespaces with objects that may apply to a workload.
func (x *ignored) markOf(w *mesh.WorkloadSpec) {
	for _, namespace := range []string{w.Namespace, x.root, mesh.IstioRoot} {
		if len(x.in[namespace]) > 0 {
			x.stale.add(namespace)
		}
	}
}

// update computes the lists of the marked namespaces again. Function reported returns whether an object is
// reported.
func (x *ignored) update(reported func(*mesh.IgnoredSpec) bool) {
	for namespace := range x.stale.take() {
		all := slices.SortedFunc(maps.Keys(x.in[namespace]), func(a, b *mesh.IgnoredSpec) int {
			return cmp.Or(mesh.CompareBool(b.Guards, a.Guards), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
		all = all[:min(len(all), maxConsidered)]
		out := &mesh.IgnoredList{All: all, Reported: slices.DeleteFunc(slices.Clone(all), func(s *mesh.IgnoredSpec) bool { return !reported(s) })}
		if was := x.table.Get(namespace); was != nil && slices.Equal(was.All, out.All) && slices.Equal(was.Reported, out.Reported) {
			out = was
		}
		if len(all) == 0 {
			out = nil
		}
		x.table.Put(namespace, out)
	}
}

// selectsOwn reports whether s applies to a workload with Outrider's proxy.
func (b *Builder) selectsOwn(s *mesh.IgnoredSpec) bool {
	everywhere := s.Namespace == b.config.RootNamespace || s.Namespace == mesh.IstioRoot
	for _, w := range b.workloads.selected(s.Namespace, everywhere, s.Selector) { // any order: one suffices
		if w.Own {
			return true
		}
	}
	return false
}

// conflictsOfIgnored returns the reported objects in a mesh as conflicts. In each namespace, those that
// should forbid something come first.
func conflictsOfIgnored(m *mesh.Mesh) (out []Conflict) {
	all := m.Ignored()
	for _, namespace := range slices.Sorted(maps.Keys(all)) {
		for i, s := range all[namespace] {
			if i == maxIgnored {
				out = append(out, Conflict{Severity: contract.WarningPrefix, Object: mesh.Key{Kind: "Namespace", Name: namespace},
					Message: fmt.Sprintf("%d or more other objects of it are ignored", len(all[namespace])-i)})
				break
			}
			out = append(out, Conflict{Severity: s.Severity(), Object: s.Key(), Message: s.Message()})
		}
	}
	return out
}
