package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"outrider.dev/internal/base/contract"
)

// An IgnoredSpec is an object of a kind that other meshes support, and Outrider does not.
type IgnoredSpec struct {
	Kind, Namespace, Name string
	Guards                bool              // it forbids something, and here it does not
	Partly                bool              // it is enforced, and not as it is written
	OtherRoot             bool              // that is so because Istio's root namespace is not Outrider's, and for no other reason
	Instead               string            // what to do
	Selector              map[string]string // of the workloads it is for; none: all of its namespace, or from the root namespace all
}

// IstioRoot is Istio's default root namespace: what is there was for all pods, also for those
// that have Outrider's proxy now.
const IstioRoot = "istio-system"

// RootNamespaces are those whose objects are for all, by the defaults of Outrider and of Istio.
func RootNamespaces() []string { return []string{DefaultRoot, IstioRoot} }

// Key returns the key, of which the kind is that of the object.
func (s *IgnoredSpec) Key() Key { return Key{Kind(s.Kind), s.Namespace, s.Name} }

// Severity begins the sentences about s, in /debug/problems and in the status of a proxy.
func (s *IgnoredSpec) Severity() string {
	if s.Guards {
		return contract.ErrorPrefix
	}
	return contract.WarningPrefix
}

// Effect says what it means that s is ignored.
func (s *IgnoredSpec) Effect() string {
	switch {
	case s.Partly:
		return "is not enforced as it is written"
	case s.Guards:
		return "is not enforced by Outrider"
	}
	return "has no effect on pods of Outrider"
}

// Message is the effect, and what to do.
func (s *IgnoredSpec) Message() string { return s.Effect() + ": " + s.Instead }

func (b *Builder) indexIgnored(s *IgnoredSpec, present bool) {
	b.ignored.set(s.Namespace, s, present)
	b.staleIgnored.add(s.Namespace)
}

// markIgnored marks the objects that may select a workload.
func (b *Builder) markIgnored(w *WorkloadSpec) {
	for _, namespace := range []string{w.Namespace, b.config.RootNamespace, IstioRoot} {
		if len(b.ignored[namespace]) > 0 {
			b.staleIgnored.add(namespace)
		}
	}
}

// An ignoredList has the ignored objects of a namespace, and those of them that are reported:
// all if no other mesh can use them, else those that select a workload of Outrider's own.
type ignoredList struct{ all, reported []*IgnoredSpec }

// updateIgnored computes the list of a namespace.
func (b *Builder) updateIgnored(namespace string, e *edit[string, *ignoredList]) {
	all := slices.SortedFunc(maps.Keys(b.ignored[namespace]), func(a, b *IgnoredSpec) int {
		return cmp.Or(compareBool(b.Guards, a.Guards), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	all = all[:min(len(all), maxConsidered)]
	out := &ignoredList{all, slices.DeleteFunc(slices.Clone(all), func(s *IgnoredSpec) bool { return !b.OnlyMesh && !b.selectsOwn(s) })}
	switch was := e.old.get(namespace); {
	case len(all) == 0 && was != nil:
		e.delete(namespace)
	case len(all) > 0 && (was == nil || !slices.Equal(was.all, out.all) || !slices.Equal(was.reported, out.reported)):
		e.set(namespace, out)
	}
}

// selectsOwn reports whether s is for a workload with Outrider's proxy.
func (b *Builder) selectsOwn(s *IgnoredSpec) bool {
	all := b.byNamespace[s.Namespace]
	switch {
	case s.Namespace == b.config.RootNamespace || s.Namespace == IstioRoot:
		for _, w := range b.workloads { // any order: one is enough
			if w.spec != nil && w.spec.Own && s.IsFor(w.spec.Labels) {
				return true
			}
		}
		return false
	case len(s.Selector) > 0:
		all = b.byLabel[selectorKey(s.Namespace, s.Selector)]
	}
	for id := range all { // any order: one is enough
		if w := b.workloads[id].spec; w.Own && s.IsFor(w.Labels) {
			return true
		}
	}
	return false
}

// IsFor reports whether s selects a workload of its namespace.
func (s *IgnoredSpec) IsFor(labels map[string]string) bool {
	return len(s.Selector) == 0 || selects(s.Selector, labels)
}

// Ignored returns the objects that are reported, by namespace.
func (m *Mesh) Ignored() map[string][]*IgnoredSpec {
	out := map[string][]*IgnoredSpec{}
	for namespace, list := range m.ignored.all() { // any order: a map
		out[namespace] = list.reported
	}
	return out
}

// Unenforced returns the objects that forbid something for a workload with Outrider's proxy, and
// do not. The workload need not be in the mesh.
func (m *Mesh) Unenforced(w *Workload) []*IgnoredSpec {
	var out []*IgnoredSpec
	namespaces := []string{m.Config.RootNamespace, IstioRoot, w.Namespace}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		if list := m.ignored.get(namespace); list != nil {
			for _, s := range list.all {
				if s.Guards && s.IsFor(w.Labels) {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// Limits for one namespace, in which its tenants can make any number of objects.
const (
	maxIgnored    = 100  // that are reported one by one
	maxConsidered = 1000 // that are compared with its workloads, those that guard first
)

// conflictsOfIgnored returns the reported objects as conflicts, those that guard first.
func (b *Builder) conflictsOfIgnored() []Conflict {
	var out []Conflict
	all := b.current.Ignored()
	for _, namespace := range slices.Sorted(maps.Keys(all)) {
		for i, s := range all[namespace] {
			if i == maxIgnored {
				out = append(out, Conflict{Severity: contract.WarningPrefix, Object: Key{"Namespace", "", namespace},
					Message: fmt.Sprintf("%d or more other objects of it are ignored", len(all[namespace])-i)})
				break
			}
			out = append(out, Conflict{Severity: s.Severity(), Object: s.Key(), Message: s.Message()})
		}
	}
	return out
}
