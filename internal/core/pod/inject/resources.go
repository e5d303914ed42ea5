package inject

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/verdict"
)

// fitted returns a container's resources, reduced so that they fit into the pod-level resources (spec.resources).
// The API server refuses a container whose limit exceeds the pod's, and containers whose requests together exceed
// the pod's. The proxy therefore gets what the other containers leave.
func fitted(c corev1.ResourceRequirements, pod *corev1.Pod, r *verdict.Report) corev1.ResourceRequirements {
	if pod.Spec.Resources == nil {
		return c
	}
	c = *c.DeepCopy()
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} { // the proxy uses no other resources
		most, limited := pod.Spec.Resources.Limits[name]
		if limit, ok := c.Limits[name]; limited && ok && limit.Cmp(most) > 0 {
			r.Warn("the proxy's %s limit is the pod's, %s (spec.resources.limits), and not %s", name, most.String(), limit.String())
			c.Limits[name] = most
		}
		budget, ok := pod.Spec.Resources.Requests[name]
		if !ok {
			budget, ok = most, limited
		}
		request, requested := c.Requests[name]
		if !requested { // the API server uses the limit as the request
			request, requested = c.Limits[name]
		}
		if !ok || !requested {
			continue
		}
		if left := remaining(budget, pod, name); request.Cmp(left) > 0 {
			r.Warn("the proxy's %s request is %s, the rest of the pod's spec.resources, in place of %s", name, left.String(), request.String())
			if c.Requests == nil {
				c.Requests = corev1.ResourceList{}
			}
			c.Requests[name] = left
		}
	}
	return c
}

// remaining returns the part of a budget that the author's containers do not request. An init container that
// completes counts too, although later containers could use its share.
func remaining(budget resource.Quantity, pod *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	left := budget.DeepCopy()
	for _, c := range containers.Authors(pod) {
		request, ok := c.Resources.Requests[name]
		if !ok {
			request = c.Resources.Limits[name]
		}
		left.Sub(request)
	}
	if left.Sign() < 0 {
		return resource.Quantity{}
	}
	return left
}
