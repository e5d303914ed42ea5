package kube

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/mesh/objects"
)

// backendPolicies and trafficPolicies are the kinds of policies for Services. The second is in the Gateway
// API's experimental channel.
var (
	backendPolicies = customOf(mesh.KindBackendPolicy, objects.BackendPolicy,
		schema.GroupVersionResource{Group: "outrider.dev", Version: "v1alpha1", Resource: "backendpolicies"})
	trafficPolicies = skippedWith(backendPolicies, customOf(mesh.KindTrafficPolicy, objects.XBackendTrafficPolicy,
		schema.GroupVersionResource{Group: "gateway.networking.x-k8s.io", Version: "v1alpha1", Resource: "xbackendtrafficpolicies"}))
)

func skippedWith(other, k kind) kind {
	k.with = other.resource()
	return k
}

func isPolicy(kind mesh.Kind) bool {
	return kind == mesh.KindBackendPolicy || kind == mesh.KindTrafficPolicy
}

// api returns the resource of a custom kind, with its group and version.
func (k kind) api() schema.GroupVersionResource {
	resource, group, _ := strings.Cut(k.definition, ".")
	return schema.GroupVersionResource{Group: group, Version: k.version, Resource: resource}
}

// maxAncestors is the Gateway API's limit for the entries in the status of a policy.
const maxAncestors = 16

// judgedPolicy returns a policy with its new status, which has an entry for each Service that the policy
// targets; nil if the status is already right.
func (r *routeObject) judgedPolicy(m *mesh.Mesh, now time.Time) (*unstructured.Unstructured, error) {
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`
		} `json:"spec"`
		Status gatewayv1.PolicyStatus `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.object.Object, &object); err != nil {
		return nil, nil //nolint:nilerr // its form is unknown, which the source reports
	}
	part, invalid := r.policy()
	var is, ours []gatewayv1.RouteParentStatus
	for _, a := range object.Status.Ancestors {
		is = append(is, gatewayv1.RouteParentStatus{ParentRef: a.AncestorRef, ControllerName: a.ControllerName, Conditions: a.Conditions})
	}
	for _, ref := range object.Spec.TargetRefs {
		if ref.Group != "" || ref.Kind != "Service" {
			continue
		}
		target := mesh.PolicyTarget{Name: string(ref.Name), Section: string(ptr.Deref(ref.SectionName, ""))}
		conditions := policyConditions(m.ByName(r.object.GetNamespace(), target.Name), part, invalid, target)
		for i := range conditions {
			conditions[i].ObservedGeneration = object.Metadata.Generation
		}
		service := gatewayv1.ParentReference{Group: ptr.To(ref.Group), Kind: ptr.To(ref.Kind), Name: ref.Name, SectionName: ref.SectionName}
		ours = append(ours, gatewayv1.RouteParentStatus{ParentRef: service, Conditions: conditions})
	}
	next := statusEntries(is, ours, now)
	next = next[:min(len(next), maxAncestors)]
	if sameEntries(is, next) {
		return nil, nil
	}
	var status gatewayv1.PolicyStatus
	for _, e := range next {
		status.Ancestors = append(status.Ancestors, gatewayv1.PolicyAncestorStatus{AncestorRef: e.ParentRef, ControllerName: e.ControllerName, Conditions: e.Conditions})
	}
	return r.withStatus("ancestors", &status)
}

// policy returns the policy as a part of the mesh. If it is invalid, the part has only its name, and the
// error is the reason.
func (r *routeObject) policy() (*mesh.BackendPolicySpec, error) {
	of := backendPolicies
	if r.kind.name == mesh.KindTrafficPolicy {
		of = trafficPolicies
	}
	part, err := of.part(r.object)
	if p, ok := part.(*mesh.BackendPolicySpec); ok && err == nil {
		return p, nil
	}
	return &mesh.BackendPolicySpec{Kind: r.kind.name, Namespace: r.object.GetNamespace(), Name: r.object.GetName()}, err
}

// policyConditions returns the conditions for one target. They show whether the policy is accepted, and which
// of its fields have no effect.
func policyConditions(s *mesh.Service, p *mesh.BackendPolicySpec, invalid error, t mesh.PolicyTarget) []metav1.Condition {
	accepted := func(reason gatewayv1.PolicyConditionReason, message string) metav1.Condition {
		return condition(gatewayv1.RouteConditionType(gatewayv1.PolicyConditionAccepted), gatewayv1.RouteConditionReason(reason), message)
	}
	verdict := build.Judge(s, p, t)
	switch {
	case verdict.NotFound != "":
		return []metav1.Condition{accepted(gatewayv1.PolicyReasonTargetNotFound, verdict.NotFound)}
	case invalid != nil:
		message := invalid.Error() + "; the policy is not used"
		if s.Uses(p) {
			message = invalid.Error() + "; its last valid version stays in use"
		}
		return []metav1.Condition{accepted(gatewayv1.PolicyReasonInvalid, message)}
	case verdict.Conflicted != "":
		return []metav1.Condition{accepted(gatewayv1.PolicyReasonConflicted, verdict.Conflicted)}
	}
	out := []metav1.Condition{accepted(gatewayv1.PolicyReasonAccepted, verdict.Note)}
	if len(verdict.Without) > 0 { // the Gateway API defines this type of condition only for routes
		c := condition(gatewayv1.RouteConditionPartiallyInvalid, gatewayv1.RouteReasonUnsupportedValue, strings.Join(verdict.Without, "; "))
		c.Status = metav1.ConditionTrue
		out = append(out, c)
	}
	return out
}
