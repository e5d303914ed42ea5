package build

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// maxAuthorization bounds all policies of a workload, times its ports: each port has them in its filter
// chains. It is in bytes as [mesh.AuthorizationSpec.Size] counts.
const maxAuthorization = 1 << 20

// authorizations are the AuthorizationPolicies, and what they are for.
type authorizations struct {
	root       string                                    // the root namespace
	bySelector multimap[label, *mesh.AuthorizationSpec]  // by one label of their selector; without: by a label without key
	in         multimap[string, *mesh.AuthorizationSpec] // by namespace
	digests    map[*mesh.AuthorizationSpec]string
	tooLarge   multimap[string, mesh.Key] // workloads whose policies are too large, by namespace
	table      persistent.Table[mesh.Key, *mesh.Authorization]
	guarded    persistent.Table[string, bool] // namespaces that have any
	stale      set[string]                    // namespaces
}

func (x *authorizations) set(s *mesh.AuthorizationSpec, present bool) {
	at := label{namespace: s.Namespace}
	if len(s.Selector) > 0 {
		at = selectorKey(s.Namespace, s.Selector)
	}
	x.bySelector.set(at, s, present)
	x.in.set(s.Namespace, s, present)
	x.stale.add(s.Namespace)
	if delete(x.digests, s); present {
		x.digests[s] = digest(s)
	}
}

// digest is the same for policies that are enforced in the same way, under the same name.
func digest(s *mesh.AuthorizationSpec) string {
	raw, err := json.Marshal([]any{s.Namespace, s.Name, s.Deny, s.Rules})
	if err != nil {
		panic(err) // strings and lists alone
	}
	sum := sha256.Sum256(raw)
	return string(sum[:])
}

// of returns those that are for a workload. The cost goes with its labels, and with the
// policies that have one of these in their selector.
func (x *authorizations) of(w *mesh.Workload) []*mesh.AuthorizationSpec {
	var out []*mesh.AuthorizationSpec
	namespaces := []string{x.root, w.Namespace}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		if len(x.in[namespace]) == 0 {
			continue
		}
		add := func(l label) {
			for s := range x.bySelector[l] { // any order: sorted
				if s.IsFor(w.Labels) {
					out = append(out, s)
				}
			}
		}
		add(label{namespace: namespace})
		for k, v := range w.Labels { // any order: sorted
			add(label{namespace, k, v})
		}
	}
	slices.SortFunc(out, func(a, b *mesh.AuthorizationSpec) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// authorize returns what holds for a workload with its ports; nil if no policy is for it. The
// last one, if it is the same.
func (x *authorizations) authorize(id mesh.Key, w *mesh.Workload) *mesh.Authorization {
	policies := x.of(w)
	if len(policies) == 0 {
		x.forget(id)
		return nil
	}
	next := &mesh.Authorization{Policies: policies}
	size, hash := 0, sha256.New()
	for _, s := range policies {
		size += s.Size()
		hash.Write([]byte(x.digests[s]))
	}
	next.TooLarge = size*(len(w.Ports)+1) > maxAuthorization
	x.tooLarge.set(id.Namespace, id, next.TooLarge)
	next.Key = fmt.Sprintf("%x %t", hash.Sum(nil), next.TooLarge)
	if last := x.table.Get(id); last != nil && last.Key == next.Key && slices.Equal(last.Policies, next.Policies) {
		next = last
	}
	x.table.Put(id, next)
	return next
}

// forget: no policy is for a workload.
func (x *authorizations) forget(id mesh.Key) {
	x.tooLarge.set(id.Namespace, id, false)
	x.table.Put(id, nil)
}

// update notes which namespaces have policies.
func (x *authorizations) update() {
	for namespace := range x.stale.take() {
		x.guarded.Put(namespace, len(x.in[namespace]) > 0)
	}
}

// conflicts returns the workloads whose policies are too large: one for each namespace.
func (x *authorizations) conflicts() []Conflict {
	var out []Conflict
	for namespace, all := range x.tooLarge { // any order: sorted
		more := ""
		if len(all) > 1 {
			more = fmt.Sprintf("; so are those of %d other workloads of %s", len(all)-1, namespace)
		}
		out = append(out, Conflict{Object: smallest(all), Message: fmt.Sprintf(
			"all connections to it are denied: the AuthorizationPolicies that select it, times its ports, have more than %d bytes; make them smaller, or split the workload%s", maxAuthorization, more)})
	}
	slices.SortFunc(out, func(a, b Conflict) int { return cmp.Compare(a.Object.String(), b.Object.String()) })
	return out
}
