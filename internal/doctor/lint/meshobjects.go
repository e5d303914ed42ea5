package lint

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/objects"
)

// A meshObject is a policy, a route, a Host or an EndpointSlice: a kind of object that outriderd reads.
type meshObject struct {
	located
	errs objects.FieldErrors // fields that outriderd refuses

	selectsAll bool                // an empty selector selects all pods
	never      objects.FieldErrors // values that no request can have
}

// A slice is an EndpointSlice of a Service.
type slice struct {
	*mesh.SliceSpec
	located
}

// addMeshObject adds an object, given as JSON, if it is a mesh object with a problem, or an EndpointSlice.
func (w *world) addMeshObject(l located, raw []byte) {
	group, _, _ := strings.Cut(manifest.Text(l.at.Node, "apiVersion"), "/")
	if group != "security.istio.io" && group != "outrider.dev" && group != "discovery.k8s.io" && !strings.HasPrefix(group, "gateway.networking.") {
		return
	}
	o := meshObject{located: l}
	read, err := objects.Read(raw)
	if err != nil && !errors.As(err, &o.errs) {
		return
	}
	for i := range read {
		if part, ok := read[i].Part.(*mesh.SliceSpec); ok {
			w.slices = append(w.slices, slice{part, l})
		}
	}
	o.selectsAll, o.never = objects.SelectsAll(raw), objects.NeverMatches(raw)
	if o.errs != nil || o.selectsAll || o.never != nil {
		w.meshObjects = append(w.meshObjects, o)
	}
}

// refusedObject finds objects with fields that outriderd refuses. The API server may accept them, if the
// CustomResourceDefinition has another version.
func refusedObject(o meshObject, b *builder) {
	for _, e := range o.errs {
		b.add(clue{code: "object-refused", title: fmt.Sprintf("%s is refused by outriderd", o.Ref), field: parsePath(e.Field),
			why: objects.WhileRefused(o.Ref.Kind), do: strings.TrimPrefix(e.Field+": ", ": ") + e.Message, source: "docs/kubernetes.md"})
	}
}

// neverMatches finds values that outriderd accepts, as Istio does, but that no request can match.
func neverMatches(o meshObject, b *builder) {
	for _, e := range o.never {
		b.add(clue{code: "value-never-matches", title: fmt.Sprintf("%s has a value that no request has", o.Ref), field: parsePath(e.Field),
			why: "values are compared as they are written: a rule that depends on this one never matches",
			do:  e.Message, source: "istio/api security/v1beta1/authorization_policy.proto"})
	}
}

// selectsEverything finds selectors without labels. They select all pods, as they do in Istio.
func selectsEverything(o meshObject, b *builder) {
	if !o.selectsAll {
		return
	}
	namespace := cmp.Or(o.Ref.Namespace, b.Namespace)
	b.add(clue{code: "selector-empty", title: fmt.Sprintf("%s applies to all pods of namespace %s", o.Ref, namespace), field: path{"spec", "selector"},
		why: "its selector names no label, which selects every pod of the namespace, and from the root namespace every pod of the mesh",
		do:  "name labels in spec.selector.matchLabels; if all pods are meant, leave spec.selector out", source: "istio/api type/v1beta1/selector.proto"})
}
