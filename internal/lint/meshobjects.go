package lint

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"outrider.dev/internal/lint/finding"
	"outrider.dev/internal/manifest"
	"outrider.dev/internal/mesh/objects"
)

// A meshObject is of a kind that outriderd reads: a policy, a route, a Host.
type meshObject struct {
	Ref    finding.Object
	source *source
	root   int
	errs   objects.FieldErrors // what it refuses

	emptySelector path // nil: there is none
}

// addMeshObject adds the object if it is one about which there is something to say.
func (w *world) addMeshObject(s *source, root int, ref finding.Object) {
	node := s.objects[root].node
	group, _, _ := strings.Cut(manifest.Text(node, "apiVersion"), "/")
	if group != "security.istio.io" && group != "outrider.dev" && !strings.HasPrefix(group, "gateway.networking.") {
		return
	}
	text, err := yaml.Marshal(node)
	if err != nil {
		return
	}
	raw, err := manifest.JSON(text) // keys that are numbers, such as ports, are texts in it
	if err != nil {
		return
	}
	o := meshObject{Ref: ref, source: s, root: root}
	if _, err := objects.Read(raw); err != nil && !errors.As(err, &o.errs) {
		return
	}
	selector := manifest.Field(node, "spec", "selector")
	if group == "security.istio.io" && selector != nil && selector.Kind == yaml.MappingNode {
		if labels := manifest.Field(selector, "matchLabels"); labels == nil || len(labels.Content) == 0 {
			o.emptySelector = path{"spec", "selector"}
		}
	}
	if o.errs != nil || o.emptySelector != nil {
		w.meshObjects = append(w.meshObjects, o)
	}
}

// refusedObject: outriderd uses what it can of an object that is not valid. Without the definition of
// the kind, which may be of another version, the API server takes it.
func refusedObject(o meshObject, b *builder) {
	effect := "outriderd goes on with the version that it had before, or without the object"
	if o.Ref.Kind == "AuthorizationPolicy" {
		effect = "until it is correct, outriderd lets it allow nothing, or deny everything, for what it selects"
	}
	for _, e := range o.errs {
		b.add(clue{code: "object-refused", title: fmt.Sprintf("%s is refused by outriderd", o.Ref), field: parsePath(e.Field),
			why: effect, do: strings.TrimPrefix(e.Field+": ", ": ") + e.Message, source: "docs/kubernetes.md"})
	}
}

// selectsEverything: a selector that is empty is one of all pods, by Istio's rules as well.
func selectsEverything(o meshObject, b *builder) {
	if o.emptySelector == nil {
		return
	}
	namespace := cmp.Or(o.Ref.Namespace, b.Namespace)
	b.add(clue{code: "selector-empty", title: fmt.Sprintf("%s is for all pods of namespace %s", o.Ref, namespace), field: o.emptySelector,
		why: "its selector names no label, which selects every pod of the namespace, and from the root namespace every pod of the mesh",
		do:  "name labels in spec.selector.matchLabels; if all pods are meant, leave spec.selector out", source: "istio/api type/v1beta1/selector.proto"})
}
