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

// maxAuthorization limits the size of a workload's policies in bytes ([mesh.AuthorizationSpec.Size]),
// multiplied by the workload's number of ports plus 1: the filter chains of each port repeat the policies.
const maxAuthorization = 1 << 20

// authorizations contains the AuthorizationPolicies, with indexes by the workloads to which they may apply.
type authorizations struct {
	root string // the root namespace
	// bySelector contains the policies by one label of their selector; those without a selector by a label
	// with an empty key.
	bySelector multimap[label, *mesh.AuthorizationSpec]
	in         multimap[string, *mesh.AuthorizationSpec] // policies by namespace
	digests    map[*mesh.AuthorizationSpec]string
	tooLarge   multimap[string, mesh.Key] // workloads whose policies exceed maxAuthorization, by namespace
	table      persistent.Table[mesh.Key, *mesh.Authorization]
	guarded    persistent.Table[string, bool] // namespaces with policies
	stale      set[string]                    // namespaces to be computed again
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

// digest returns a text that is equal for policies with the same name that are enforced in the same way.
func digest(s *mesh.AuthorizationSpec) string {
	raw, err := json.Marshal([]any{s.Namespace, s.Name, s.Deny, s.Rules})
	if err != nil {
		panic(err) // cannot occur, because there are only strings, lists and booleans
	}
	sum := sha256.Sum256(raw)
	return string(sum[:])
}

// of returns the policies that apply to a workload. The cost depends on the number of the workload's labels,
// and on the number of policies that have one of these labels in their selector.
func (x *authorizations) of(w *mesh.Workload) []*mesh.AuthorizationSpec {
	var out []*mesh.AuthorizationSpec
	namespaces := []string{x.root, w.Namespace}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		if len(x.in[namespace]) == 0 {
			continue
		}
		add := func(l label) {
			for s := range x.bySelector[l] { // any order: sorted below
				if s.IsFor(w.Labels) {
					out = append(out, s)
				}
			}
		}
		add(label{namespace: namespace})
		for k, v := range w.Labels { // any order: sorted below
			add(label{namespace, k, v})
		}
	}
	slices.SortFunc(out, func(a, b *mesh.AuthorizationSpec) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// authorize returns the policies for a workload and its ports; nil if none applies. If nothing has changed,
// it returns the same pointer as before.
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

// forget records that no policy applies to a workload.
func (x *authorizations) forget(id mesh.Key) {
	x.tooLarge.set(id.Namespace, id, false)
	x.table.Put(id, nil)
}

// update records for each changed namespace whether it has policies.
func (x *authorizations) update() {
	for namespace := range x.stale.take() {
		x.guarded.Put(namespace, len(x.in[namespace]) > 0)
	}
}

// conflicts reports the workloads whose policies are too large: one workload for each namespace, and the
// number of the others.
func (x *authorizations) conflicts() []Conflict {
	var out []Conflict
	for namespace, all := range x.tooLarge { // any order: sorted below
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
