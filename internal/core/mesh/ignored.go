package mesh

import (
	"slices"

	"outrider.dev/internal/base/contract"
)

// An IgnoredSpec is an object that other meshes support and Outrider does not, or not fully.
type IgnoredSpec struct {
	Kind, Namespace, Name string
	Guards                bool              // it should forbid something, and is not enforced
	Partly                bool              // it is enforced, but not as written
	OtherRoot             bool              // the only reason is that Istio's root namespace is not Outrider's
	Instead               string            // what to do instead
	Selector              map[string]string // workloads to which it applies; none: all in its namespace or, from the root namespace, in the mesh
}

// IstioRoot is Istio's default root namespace. In Istio its objects apply to all pods, including those
// that have Outrider's proxy now.
const IstioRoot = "istio-system"

// RootNamespaces returns the default root namespaces of Outrider and of Istio, whose objects apply to
// all namespaces.
func RootNamespaces() []string { return []string{DefaultRoot, IstioRoot} }

// Key returns the key, with the kind of the object.
func (s *IgnoredSpec) Key() Key { return Key{Kind(s.Kind), s.Namespace, s.Name} }

// Severity returns the beginning of sentences about s, in /debug/problems and in a proxy's status.
func (s *IgnoredSpec) Severity() string {
	if s.Guards {
		return contract.ErrorPrefix
	}
	return contract.WarningPrefix
}

// Effect says what follows from ignoring s.
func (s *IgnoredSpec) Effect() string {
	switch {
	case s.Partly:
		return "is not enforced as it is written"
	case s.Guards:
		return "is not enforced by Outrider"
	}
	return "has no effect on pods of Outrider"
}

// Message returns the effect, and what to do.
func (s *IgnoredSpec) Message() string { return s.Effect() + ": " + s.Instead }

// An IgnoredList contains the ignored objects in a namespace, and those that are reported: all if no
// other mesh can use them, otherwise those that select a workload with Outrider's proxy.
type IgnoredList struct{ All, Reported []*IgnoredSpec }

// IsFor reports whether the selector of s matches a workload's labels.
func (s *IgnoredSpec) IsFor(labels map[string]string) bool {
	return len(s.Selector) == 0 || Selects(s.Selector, labels)
}

// Ignored returns the reported objects by namespace.
func (m *Mesh) Ignored() map[string][]*IgnoredSpec {
	out := map[string][]*IgnoredSpec{}
	for namespace, list := range m.tables.Ignored.All() { // any order: the result is a map
		out[namespace] = list.Reported
	}
	return out
}

// Unenforced returns the objects that should forbid something for a workload with Outrider's proxy, but
// are not enforced. The workload need not be in the mesh.
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
