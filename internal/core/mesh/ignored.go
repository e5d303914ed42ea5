package mesh

import (
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

// An IgnoredList has the ignored objects of a namespace, and those of them that are reported:
// all if no other mesh can use them, else those that select a workload of Outrider's own.
type IgnoredList struct{ All, Reported []*IgnoredSpec }

// IsFor reports whether s selects a workload of its namespace.
func (s *IgnoredSpec) IsFor(labels map[string]string) bool {
	return len(s.Selector) == 0 || Selects(s.Selector, labels)
}

// Ignored returns the objects that are reported, by namespace.
func (m *Mesh) Ignored() map[string][]*IgnoredSpec {
	out := map[string][]*IgnoredSpec{}
	for namespace, list := range m.tables.Ignored.All() { // any order: a map
		out[namespace] = list.Reported
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
		if list := m.tables.Ignored.Get(namespace); list != nil {
			for _, s := range list.All {
				if s.Guards && s.IsFor(w.Labels) {
					out = append(out, s)
				}
			}
		}
	}
	return out
}
