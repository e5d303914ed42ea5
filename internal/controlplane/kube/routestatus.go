package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"outrider.dev/internal/contract"
	"outrider.dev/internal/mesh"
	"outrider.dev/internal/mesh/objects"
)

// ControllerName is who wrote a parent's entry in the status of a route.
const ControllerName = "outrider.dev/outriderd"

// A RouteStatus writes the status of routes whose parents are Services: of HTTPRoutes, and of
// GRPCRoutes, that they have no effect. One replica writes, the holder of the Lease
// [contract.RouteStatusLease]; it has no part in what proxies get.
type RouteStatus struct {
	cluster   *Cluster
	namespace string // of the Lease
	source    Meshes
	kinds     []kind

	leaseTimes

	mu     sync.Mutex
	routes map[mesh.Key]*routeObject
	dirty  chan struct{} // has one if a route has changed
}

// A routeObject is a route as it is stored.
type routeObject struct {
	kind   kind
	object *unstructured.Unstructured
}

func (r *routeObject) Key() mesh.Key {
	return mesh.Key{Kind: r.kind.name, Namespace: r.object.GetNamespace(), Name: r.object.GetName()}
}

// Meshes are those of a [Source].
type Meshes interface {
	Current() (*mesh.Mesh, <-chan struct{})
	Synced() <-chan struct{}
}

// RouteStatus returns a writer for a control plane in a namespace, of the mesh of s; skip is that
// of [Cluster.Source].
func (c *Cluster) RouteStatus(namespace string, s Meshes, skip ...string) *RouteStatus {
	w := &RouteStatus{cluster: c, namespace: namespace, source: s, leaseTimes: usualLease}
	for resource, name := range map[string]mesh.Kind{"httproutes": mesh.KindRoute, "grpcroutes": "GRPCRoute"} { // any order: each is followed by itself
		if slices.Contains(skip, "httproutes") || resource == "grpcroutes" && slices.Contains(skip, skipIgnored) {
			continue
		}
		k := custom(name, func(*struct{}) (*routeObject, error) { return nil, nil }, gatewayv1.GroupName, resource)
		k.patient = func(f feed) feed { f.quiet = true; return f } // what fails is noted by the source
		k.part = func(o metav1.Object) (mesh.Part, error) {
			u, ok := o.(*unstructured.Unstructured)
			if !ok {
				return nil, errNoObject
			}
			return &routeObject{k, u}, nil
		}
		w.kinds = append(w.kinds, k)
	}
	return w
}

// Run writes while this replica holds the Lease, until ctx ends. Then the Lease is released.
func (w *RouteStatus) Run(ctx context.Context) error {
	if len(w.kinds) == 0 || !wait(ctx, w.source.Synced()) {
		<-ctx.Done()
		return ctx.Err()
	}
	return w.cluster.lead(ctx, w.namespace, contract.RouteStatusLease, w.leaseTimes, w.lead)
}

var routesResource = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: customVersion, Resource: "httproutes"}

// passEvery bounds how often all routes are looked at.
const passEvery = time.Second

// lead follows the routes, and writes what differs.
func (w *RouteStatus) lead(ctx context.Context) {
	w.cluster.log.Info("this replica writes the status of routes", "lease", contract.RouteStatusLease)
	w.mu.Lock()
	w.routes, w.dirty = map[mesh.Key]*routeObject{}, make(chan struct{}, 1)
	w.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	for _, k := range w.kinds {
		to := newStore(func(_ known, o metav1.Object) known { p, _ := k.part(o); return known{part: p} })
		to.changed = func(n types.NamespacedName, _, now known, exists bool) { w.changed(k, n, now, exists) }
		running.Go(func() { w.cluster.followCustom(ctx, k, to) })
	}
	for ctx.Err() == nil {
		m, newer := w.source.Current()
		if !w.pass(ctx, m) { // a failure is tried again
			w.notify()
		}
		if !sleep(ctx, passEvery) {
			return
		}
		select {
		case <-newer:
		case <-w.dirty:
		case <-ctx.Done():
		}
	}
}

func (w *RouteStatus) changed(k kind, n types.NamespacedName, now known, exists bool) {
	w.mu.Lock()
	key := mesh.Key{Kind: k.name, Namespace: n.Namespace, Name: n.Name}
	delete(w.routes, key)
	if r, ok := now.part.(*routeObject); ok && exists {
		w.routes[key] = r
	}
	w.mu.Unlock()
	w.notify()
}

func (w *RouteStatus) notify() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// pass writes the routes whose status is another one. It returns false if a write has failed.
func (w *RouteStatus) pass(ctx context.Context, m *mesh.Mesh) bool {
	w.mu.Lock()
	var all []*routeObject
	for _, r := range w.routes { // any order: sorted
		all = append(all, r)
	}
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b *routeObject) int { return compareKeys(a.Key(), b.Key()) })
	const tried = "writing the status of routes"
	for _, r := range all {
		next, err := r.judged(m, time.Now())
		if err == nil && next != nil {
			err = w.write(ctx, r, next)
		}
		if err != nil && ctx.Err() == nil {
			w.cluster.trouble.note(tried, explain(tried, err))
			return false
		}
	}
	w.cluster.trouble.note(tried, nil)
	return true
}

// write is one request. What was changed or deleted meanwhile comes again by the watch.
func (w *RouteStatus) write(ctx context.Context, r *routeObject, next *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resource := schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: customVersion, Resource: r.kind.optional()}
	_, err := w.cluster.dynamic.Resource(resource).Namespace(next.GetNamespace()).UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// judged is the route with its status; nil if it has that already.
func (r *routeObject) judged(m *mesh.Mesh, now time.Time) (*unstructured.Unstructured, error) {
	var route gatewayv1.HTTPRoute // of a GRPCRoute: what both have, parents and status
	content := r.object.Object
	if r.kind.name != mesh.KindRoute {
		spec, _, _ := unstructured.NestedMap(content, "spec")
		content = map[string]any{"metadata": content["metadata"], "spec": map[string]any{"parentRefs": spec["parentRefs"]}, "status": content["status"]}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &route); err != nil {
		return nil, nil //nolint:nilerr // it has another form than we know; the source reports it
	}
	is := route.Status.Parents
	var next []gatewayv1.RouteParentStatus
	for _, p := range is {
		if p.ControllerName != ControllerName {
			next = append(next, p)
		}
	}
	for _, ref := range route.Spec.ParentRefs {
		if ptr.Deref(ref.Group, gatewayv1.GroupName) != "" || ptr.Deref(ref.Kind, "Gateway") != "Service" {
			continue
		}
		entry := gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: ControllerName}
		for _, p := range is {
			if p.ControllerName == ControllerName && equality.Semantic.DeepEqual(p.ParentRef, ref) {
				entry.Conditions = slices.Clone(p.Conditions)
			}
		}
		for _, c := range r.conditions(m, &route, ref) {
			c.ObservedGeneration, c.LastTransitionTime = route.Generation, metav1.NewTime(now)
			meta.SetStatusCondition(&entry.Conditions, c)
		}
		next = append(next, entry)
	}
	if sameParents(is, next) {
		return nil, nil
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&gatewayv1.RouteStatus{Parents: next})
	if err != nil {
		return nil, err
	}
	out := r.object.DeepCopy()
	if raw["parents"] == nil {
		raw["parents"] = []any{}
	}
	return out, unstructured.SetNestedField(out.Object, raw["parents"], "status", "parents")
}

// sameParents compares entries in any order.
func sameParents(is, next []gatewayv1.RouteParentStatus) bool {
	return len(is) == len(next) && !slices.ContainsFunc(next, func(n gatewayv1.RouteParentStatus) bool {
		return !slices.ContainsFunc(is, func(i gatewayv1.RouteParentStatus) bool { return equality.Semantic.DeepEqual(i, n) })
	})
}

// conditions are those for one parent.
func (r *routeObject) conditions(m *mesh.Mesh, route *gatewayv1.HTTPRoute, ref gatewayv1.ParentReference) []metav1.Condition {
	accepted := condition(gatewayv1.RouteConditionAccepted, gatewayv1.RouteReasonAccepted, "")
	refuse := func(reason gatewayv1.RouteConditionReason, message string) {
		accepted = condition(gatewayv1.RouteConditionAccepted, reason, message)
	}
	if r.kind.name != mesh.KindRoute {
		refuse(gatewayv1.RouteReasonUnsupportedValue, "a "+string(r.kind.name)+" has no effect here: use an HTTPRoute, where a method is the path /package.Service/Method")
		return []metav1.Condition{accepted}
	}
	namespace := string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(route.Namespace)))
	parent := m.ByName(namespace, string(ref.Name))
	_, err := objects.HTTPRoute(route)
	switch {
	case parent == nil:
		refuse(gatewayv1.RouteReasonNoMatchingParent, fmt.Sprintf("there is no Service %s/%s", namespace, ref.Name))
	case !slices.ContainsFunc(parent.Ports, func(p mesh.Port) bool {
		return (ref.Port == nil || int32(*ref.Port) == int32(p.Number)) && (ref.SectionName == nil || string(*ref.SectionName) == p.Name)
	}):
		refuse(gatewayv1.RouteReasonNoMatchingParent, fmt.Sprintf("Service %s/%s has no such port", namespace, ref.Name))
	case err != nil:
		refuse(gatewayv1.RouteReasonUnsupportedValue, err.Error()+"; the version before stays in use")
	}
	return []metav1.Condition{accepted, resolved(m, route)}
}

// resolved says whether all backends are there.
func resolved(m *mesh.Mesh, route *gatewayv1.HTTPRoute) metav1.Condition {
	missing := func(ref *gatewayv1.BackendObjectReference) (gatewayv1.RouteConditionReason, string) {
		if ptr.Deref(ref.Group, "") != "" || ptr.Deref(ref.Kind, "Service") != "Service" {
			return gatewayv1.RouteReasonInvalidKind, fmt.Sprintf("%s is not supported: must be Service", ptr.Deref(ref.Kind, ""))
		}
		namespace := string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(route.Namespace)))
		s := m.ByName(namespace, string(ref.Name))
		if s == nil || ref.Port == nil || !slices.ContainsFunc(s.Ports, func(p mesh.Port) bool { return int32(p.Number) == int32(*ref.Port) }) {
			return gatewayv1.RouteReasonBackendNotFound, fmt.Sprintf("there is no Service %s/%s with the port %d", namespace, ref.Name, ptr.Deref(ref.Port, 0))
		}
		return "", ""
	}
	for _, rule := range route.Spec.Rules {
		refs := make([]*gatewayv1.BackendObjectReference, 0, len(rule.BackendRefs))
		filters := slices.Clone(rule.Filters)
		for i := range rule.BackendRefs {
			refs = append(refs, &rule.BackendRefs[i].BackendObjectReference)
			filters = append(filters, rule.BackendRefs[i].Filters...)
		}
		for _, f := range filters {
			if f.RequestMirror != nil {
				refs = append(refs, &f.RequestMirror.BackendRef)
			}
		}
		for _, ref := range refs {
			if reason, message := missing(ref); reason != "" {
				return condition(gatewayv1.RouteConditionResolvedRefs, reason, message)
			}
		}
	}
	return condition(gatewayv1.RouteConditionResolvedRefs, gatewayv1.RouteReasonResolvedRefs, "")
}

// condition is true if its reason is that of success.
func condition(of gatewayv1.RouteConditionType, reason gatewayv1.RouteConditionReason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if reason == gatewayv1.RouteReasonAccepted || reason == gatewayv1.RouteReasonResolvedRefs {
		status = metav1.ConditionTrue
	}
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	return metav1.Condition{Type: string(of), Status: status, Reason: string(reason), Message: message}
}

// maxMessage is the longest text of a condition that the API takes.
const maxMessage = 32768
