package inject

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
)

// resources are the value global.proxy.resources, put over the defaults of Istio's chart as Helm
// does: what it does not name keeps its default, and what is null has none. The zero value is
// the default.
type resources struct {
	set bool
	corev1.ResourceRequirements
}

// defaultResources are Istio's.
var defaultResources = corev1.ResourceRequirements{
	Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
	Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")},
}

// UnmarshalJSON merges.
func (r *resources) UnmarshalJSON(b []byte) error {
	*r = resources{set: true}
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	var named map[string]map[string]*resource.Quantity
	if err := json.Unmarshal(b, &named); err != nil {
		return fmt.Errorf("global.proxy.resources: want requests and limits, each with amounts like cpu: 100m: %w", err)
	}
	r.ResourceRequirements = *defaultResources.DeepCopy()
	for name, amounts := range named { // any order: each changes a list of its own
		var list *corev1.ResourceList
		switch name {
		case "requests":
			list = &r.Requests
		case "limits":
			list = &r.Limits
		default:
			return fmt.Errorf("global.proxy.resources.%s: want requests or limits", name)
		}
		if amounts == nil {
			*list = nil
		}
		for of, amount := range amounts { // any order: keys differ
			if amount == nil {
				delete(*list, corev1.ResourceName(of))
				continue
			}
			if amount.Sign() < 0 {
				return fmt.Errorf("global.proxy.resources.%s.%s: %s is negative", name, of, amount.String())
			}
			if of != string(corev1.ResourceCPU) && !isWhole(*amount) {
				return fmt.Errorf("global.proxy.resources.%s.%s: %s is no whole number, as 128Mi is", name, of, amount.String())
			}
			(*list)[corev1.ResourceName(of)] = *amount
		}
	}
	return nil
}

// check reports names and amounts with which no pod can be created.
func (r resources) check() error {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for _, name := range sortedKeys(list) {
			request, limit := r.Requests[name], r.Limits[name]
			switch _, requested := r.Requests[name]; {
			case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage:
			case !strings.Contains(string(name), "/") || len(validation.IsQualifiedName(string(name))) > 0:
				return fmt.Errorf("global.proxy.resources: %q: want cpu, memory, ephemeral-storage, or the name of an extended resource, as example.com/device", name)
			case limit.IsZero() || requested && request.Cmp(limit) != 0:
				return fmt.Errorf("global.proxy.resources: %s: want a limit, and the same request or none", name)
			}
		}
	}
	for _, name := range sortedKeys(r.Limits) {
		limit := r.Limits[name]
		if request, ok := r.Requests[name]; ok && request.Cmp(limit) > 0 {
			return fmt.Errorf("global.proxy.resources: the %s request %s is more than the limit %s: set both, or one of them to null (the default request is of Istio's chart)", name, request.String(), limit.String())
		}
	}
	return nil
}

// orDefault are the resources of the proxy without annotations.
func (r resources) orDefault() corev1.ResourceRequirements {
	if r.set {
		return r.ResourceRequirements
	}
	return defaultResources
}

// fitted are a container's resources in a pod that has resources of its own (spec.resources): the
// API server refuses a container with more than the pod, and containers that request more
// together. Both are for the whole pod, so the proxy takes what is left.
func fitted(c corev1.ResourceRequirements, pod *corev1.Pod, r *report) corev1.ResourceRequirements {
	if pod.Spec.Resources == nil {
		return c
	}
	c = *c.DeepCopy()
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} { // the others are not the proxy's
		most, limited := pod.Spec.Resources.Limits[name]
		if limit, ok := c.Limits[name]; limited && ok && limit.Cmp(most) > 0 {
			r.warn("the proxy's %s limit is the pod's, %s (spec.resources.limits), and not %s", name, most.String(), limit.String())
			c.Limits[name] = most
		}
		budget, ok := pod.Spec.Resources.Requests[name]
		if !ok {
			budget, ok = most, limited
		}
		request, requested := c.Requests[name]
		if !requested { // the API server takes the limit for the request
			request, requested = c.Limits[name]
		}
		if !ok || !requested {
			continue
		}
		if left := remaining(budget, pod, name); request.Cmp(left) > 0 {
			r.warn("the proxy's %s request is what the pod's own containers leave of the pod's, %s (spec.resources), and not %s", name, left.String(), request.String())
			if c.Requests == nil {
				c.Requests = corev1.ResourceList{}
			}
			c.Requests[name] = left
		}
	}
	return c
}

// remaining is what the requests of the author's containers leave of a budget. An init container
// that completes counts too, although the others may use the same after it.
func remaining(budget resource.Quantity, pod *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	left := budget.DeepCopy()
	for _, c := range authors(pod) {
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

// withinLimits lets our request follow a lower limit of the author's own container, and our limit a
// higher request: the API server refuses a request above its limit.
func withinLimits(merged, own corev1.ResourceRequirements) {
	for name, limit := range merged.Limits { // any order: keys differ
		request, ok := merged.Requests[name]
		if !ok || request.Cmp(limit) <= 0 {
			continue
		}
		if _, chosen := own.Requests[name]; chosen {
			merged.Limits[name] = request
		} else {
			merged.Requests[name] = limit
		}
	}
}
