package mesh

import (
	"slices"

	"outrider.dev/internal/base/contract"
)

// An IgnoredSpec is a report on an object that other meshes support, and that Outrider does not support, or
// not fully.
type IgnoredSpec struct {
	Kind, Namespace, Name string
	Guards                bool   // it should forbid something, and is not enforced as written
	Partly                bool   // it is enforced, but not as written
	OtherRoot             bool   // it would be enforced as written if Istio's root namespace were Outrider's
	Instead               string // advice for the user
	// Selector selects the workloads to which the object applies. Without a selector, the object applies to its
	// namespace or, in the root namespace, to the mesh.
	Selector map[string]string
}

// IstioRoot is Istio's default root namespace. Its objects apply in Istio to all pods, including those that
// now have Outrider's proxy.
const IstioRoot = "istio-system"

// RootNamespaces returns the default root namespaces of Outrider and of Istio. Objects in them apply to all
// namespaces.
func RootNamespaces() []string { return []string{DefaultRoot, IstioRoot} }

func (s *IgnoredSpec) Key() Key { return Key{Kind(s.Kind), s.Namespace, s.Name} }

// Severity returns the prefix of the message about s, in /debug/problems and in a proxy's status.
func (s *IgnoredSpec) Severity() string {
	if s.Guards {
		return contract.ErrorPrefix
	}
	return contract.WarningPrefix
}

// Effect describes the effect of ignoring s.
func (s *IgnoredSpec) Effect() string {
	switch {
	case s.Partly:
		return "is not enforced as it is written"
	case s.Guards:
		return "is not enforced by Outrider"
	}
	return "has no effect on pods of Outrider"
}

// Message describes the effect of ignoring s, and what to do instead.
func (s *IgnoredSpec) Message() string { return s.Effect() + ": " + s.Instead }

// An IgnoredList contains the ignored objects in a namespace, and those of them that are reported. If no
// other mesh can use them, all are reported; otherwise those that select a workload with Outrider's proxy.
type IgnoredList struct{ All, Reported []*IgnoredSpec }

// IsFor reports whether the selector of s, if it has one, matches a workload's labels.
func (s *IgnoredSpec) IsFor(labels map[string]string) bool {
	return len(s.Selector) == 0 || Selects(s.Selector, labels)
}

// Ignored returns the ignored objects that are reported, by namespace.
func (m *Mesh) Ignored() map[string][]*IgnoredSpec {
	out := map[string][]*IgnoredSpec{}
	for namespace, list := range m.tables.Ignored.All() { // any order: the result is a map
		out[namespace] = list.Reported
	}
	return out
}

// Unenforced returns the objects that should forbid something for a workload with Outrider's proxy, but are
// not enforced as written. The workload need not be in the mesh.
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
