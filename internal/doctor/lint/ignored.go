package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/foreign"
)

// An ignored object has a kind that Outrider does not support.
type ignored struct {
	*mesh.IgnoredSpec
	located
}

// addIgnored adds an object, given as JSON, if Outrider ignores its kind.
func (w *world) addIgnored(l located, raw []byte) {
	var object map[string]any
	if json.Unmarshal(raw, &object) != nil {
		return
	}
	if spec := foreign.Read(object); spec != nil {
		w.ignored = append(w.ignored, ignored{spec, l})
	}
}

// withoutEffect reports objects of kinds that other meshes support and Outrider does not. The admission of such
// objects gives no warning.
func withoutEffect(o ignored, b *builder) {
	own := func(s subject) bool {
		inside := slices.Contains(mesh.RootNamespaces(), o.Namespace) || cmp.Or(o.Ref.Namespace, b.world.Namespace) == cmp.Or(s.Ref.Namespace, b.world.Namespace)
		return inside && (s.injected || s.proxy == contract.ProxyContainer) && o.IsFor(s.Pod.Labels)
	}
	i := slices.IndexFunc(b.subjects, own)
	if i < 0 {
		return
	}
	c := clue{code: "unsupported-kind", title: fmt.Sprintf("%s has no effect on pods of Outrider", o.Ref), field: path{"kind"}, evidence: o.Kind,
		why: "Outrider does not support the kind, and uses no part of the object", do: o.Instead, source: "docs/kubernetes.md"}
	if o.Guards {
		c.code, c.title = "policy-not-enforced", fmt.Sprintf("%s is not enforced by Outrider", o.Ref)
		c.why = fmt.Sprintf("what it forbids is possible at %s: Outrider does not support the kind", b.subjects[i].Ref)
	}
	if o.Partly {
		c.title, c.do = fmt.Sprintf("%s is not enforced as it is written", o.Ref), "use the conditions that docs/kubernetes.md lists, in a namespace where the policy holds"
		c.why = fmt.Sprintf("it is for %s: %s", b.subjects[i].Ref, o.Instead)
	}
	b.add(c)
}
