package check

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/objects"
)

var policies = probe{id: "policies", title: "policies are valid, and match requests"}

// policyKinds are the kinds of Istio's authorization and peer authentication policies.
var policyKinds = []schema.GroupKind{{Group: "security.istio.io", Kind: "AuthorizationPolicy"}, {Group: "security.istio.io", Kind: "PeerAuthentication"}}

// mistakenPolicies returns a check for each policy with a mistake: outriderd refuses it, it applies to all pods
// because its selector names no label, or it contains a value that no request has. If Outrider is installed, only
// policies in root namespaces and in namespaces with its proxies are reported.
func (s *survey) mistakenPolicies(ctx context.Context) (out []Check) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods, err := s.meshedPods(ctx)
	if err != nil && !s.Before {
		return []Check{policies.check(unknown(err))}
	}
	meant := func(o *unstructured.Unstructured) bool {
		return s.Before || slices.Contains(mesh.RootNamespaces(), o.GetNamespace()) ||
			slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Namespace == o.GetNamespace() })
	}
	mistaken := 0
	for _, kind := range policyKinds {
		var found []Check
		unread := s.objectsOf(ctx, policies, kind.String(), kind, func(o *unstructured.Unstructured) {
			if a, ok := judgePolicy(o); !ok && meant(o) {
				if mistaken++; mistaken <= maxReported {
					found = append(found, policies.about(o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName(), a))
				}
			}
		})
		out = append(append(out, found...), unread...)
	}
	switch {
	case mistaken > maxReported:
		out = append(out, policies.about("others", warning("outrider lint on their manifests names them all", "%d more are mistaken", mistaken-maxReported)))
	case len(out) == 0:
		out = append(out, policies.check(fine("no policy is refused, for all pods by an empty selector, or has a value that no request has")))
	}
	return out
}

// judgePolicy returns the mistake in a policy and false, or true if there is none.
func judgePolicy(o *unstructured.Unstructured) (_ answer, ok bool) {
	raw, err := o.MarshalJSON()
	if err != nil {
		return answer{}, true
	}
	var refused objects.FieldErrors
	if _, err := objects.Read(raw); errors.As(err, &refused) && len(refused) > 0 {
		e := refused[0]
		return failed(objects.WhileRefused(o.GetKind()), "outriderd refuses it: %s", strings.TrimPrefix(e.Field+": ", ": ")+e.Message), false
	}
	if never := objects.NeverMatches(raw); never != nil {
		return warning("what a rule allows or denies by it alone never happens", "%s: %s", never[0].Field, never[0].Message), false
	}
	if objects.SelectsAll(raw) {
		return warning("name labels in spec.selector.matchLabels, or leave spec.selector out if all pods are meant", "its selector names no label: it is for all pods of namespace %s", o.GetNamespace()), false
	}
	return answer{}, true
}
