package check

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/foreign"
)

var otherMeshes = probe{id: "other-meshes", title: "objects of other meshes have an effect here"}

// Limits for reading and reporting other meshes' objects.
const (
	maxObjectsOfKind = 5000
	maxReported      = 100
)

// objectsOfOtherMeshes returns a check for each object of another mesh whose kind Outrider does not support. If
// Outrider is installed, only the objects that apply to pods with its proxy are reported.
func (s *survey) objectsOfOtherMeshes(ctx context.Context) (out []Check) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	meant := func(*mesh.IgnoredSpec) bool { return true }
	if !s.Before {
		pods, err := s.meshedPods(ctx)
		if err != nil {
			return []Check{otherMeshes.check(unknown(err))}
		}
		meant = func(o *mesh.IgnoredSpec) bool {
			return slices.ContainsFunc(pods, func(p corev1.Pod) bool {
				return (o.Namespace == p.Namespace || slices.Contains(mesh.RootNamespaces(), o.Namespace)) && o.IsFor(p.Labels)
			})
		}
	}
	var found []*mesh.IgnoredSpec
	resources := foreign.Resources()
	for _, definition := range slices.Sorted(maps.Keys(resources)) {
		_, group, _ := strings.Cut(definition, ".")
		out = append(out, s.objectsOf(ctx, otherMeshes, definition, schema.GroupKind{Group: group, Kind: string(resources[definition])}, func(o *unstructured.Unstructured) {
			if spec := foreign.Read(o.Object); spec != nil && meant(spec) {
				found = append(found, spec)
			}
		})...)
	}
	slices.SortStableFunc(found, func(a, b *mesh.IgnoredSpec) int { return strings.Compare(a.Severity(), b.Severity()) }) // errors first
	for _, o := range found[:min(len(found), maxReported)] {
		judge := warning
		if o.Guards && !s.Before {
			judge = failed
		}
		out = append(out, otherMeshes.about(o.Key().String(), judge(o.Instead, "%s", o.Effect())))
	}
	switch {
	case len(found) > maxReported:
		out = append(out, otherMeshes.about("others", warning("outrider lint on their manifests names them all", "%d more are without effect", len(found)-maxReported)))
	case len(out) == 0 && s.Before:
		out = append(out, otherMeshes.check(fine("the cluster has no object that would be without effect")))
	case len(out) == 0:
		out = append(out, otherMeshes.check(fine("no object for a pod with the proxy is without effect")))
	}
	return out
}

// objectsOf calls the function take for each object of a kind, as [survey.list] does. If some or all objects cannot
// be read, it returns a check with the reason.
func (s *survey) objectsOf(ctx context.Context, p probe, name string, kind schema.GroupKind, take func(*unstructured.Unstructured)) (out []Check) {
	more, err := s.list(ctx, kind, take)
	if err != nil {
		out = append(out, p.about(name, unknown(tried("listing "+name, err))))
	}
	if more {
		out = append(out, p.about(name, skipped("more than %d: the rest was not read; outrider lint reads manifests of any number", maxObjectsOfKind)))
	}
	return out
}

// list calls the function take for each object of a kind, in the version that the API server prefers. It reads at
// most maxObjectsOfKind objects; more reports whether there are further ones. If the cluster does not have the kind,
// there are no objects.
func (s *survey) list(ctx context.Context, kind schema.GroupKind, take func(*unstructured.Unstructured)) (more bool, err error) {
	served, err := s.Mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	o := metav1.ListOptions{Limit: 500}
	for read := 0; read < maxObjectsOfKind; {
		l, err := s.Dynamic.Resource(served.Resource).List(ctx, o)
		if err != nil {
			return false, err
		}
		for i := range l.Items {
			take(&l.Items[i])
		}
		read += len(l.Items)
		if o.Continue = l.GetContinue(); o.Continue == "" {
			return false, nil
		}
	}
	return true, nil
}
