package settings

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Resources is the value global.proxy.resources. As in Helm, it overrides the defaults of Istio's chart: a
// resource that it leaves out keeps its default, and null removes a resource. The zero value means the defaults.
type Resources struct {
	set bool
	corev1.ResourceRequirements
}

// defaultResources are the defaults of Istio's chart.
var defaultResources = corev1.ResourceRequirements{
	Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
	Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")},
}

// UnmarshalJSON merges the value with the defaults.
func (r *Resources) UnmarshalJSON(b []byte) error {
	*r = Resources{set: true}
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

// check returns an error for names and amounts with which the API server would refuse every pod.
func (r Resources) check() error {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
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
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		limit := r.Limits[name]
		if request, ok := r.Requests[name]; ok && request.Cmp(limit) > 0 {
			return fmt.Errorf("global.proxy.resources: the %s request %s is more than the limit %s: set both, or one of them to null (the default request is of Istio's chart)", name, request.String(), limit.String())
		}
	}
	return nil
}

// OrDefault returns the resources of a proxy whose pod has no annotations for them.
func (r Resources) OrDefault() corev1.ResourceRequirements {
	if r.set {
		return r.ResourceRequirements
	}
	return defaultResources
}
