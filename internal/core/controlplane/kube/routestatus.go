package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/objects"
)

// ControllerName is the name of outriderd as a controller in the status of routes and policies.
const ControllerName = "outrider.dev/outriderd"

// A RouteStatus writes the status of the HTTPRoutes and GRPCRoutes whose parents are Services, and of
// the policies whose targets are Services (policystatus.go). Only one replica writes, the holder of the
// Lease [contract.RouteStatusLease]. The status has no effect on what proxies get.
type RouteStatus struct {
	cluster   *Cluster
	namespace string // namespace of the Lease
	source    Meshes
	kinds     []kind

	mu     sync.Mutex
	routes map[mesh.Key]*routeObject
	dirty  chan struct{} // contains a value if a route or policy has changed
}

// A routeObject is a route or a policy as it is stored in the cluster.
type routeObject struct {
	kind   kind
	object *unstructured.Unstructured
}

func (r *routeObject) Key() mesh.Key {
	return mesh.Key{Kind: r.kind.name, Namespace: r.object.GetNamespace(), Name: r.object.GetName()}
}

// Meshes provides the current mesh; it is a [Source].
type Meshes interface {
	Current() (*mesh.Mesh, <-chan struct{})
	Synced() <-chan struct{}
}

// RouteStatus returns a writer for the mesh of s. Namespace contains the Lease. For skip see
// [Cluster.Source].
func (c *Cluster) RouteStatus(namespace string, s Meshes, skip ...string) *RouteStatus {
	w := &RouteStatus{cluster: c, namespace: namespace, source: s}
	for resource, name := range map[string]mesh.Kind{"httproutes": mesh.KindRoute, "grpcroutes": mesh.KindGRPC} { // any order: each is watched separately
		if slices.Contains(skip, routesResource.Resource) {
			break
		}
		k := custom(name, func(*struct{}) (*routeObject, error) { return nil, nil }, gatewayv1.GroupName, resource)
		w.kinds = append(w.kinds, k.withStatus())
	}
	for _, k := range []kind{backendPolicies, trafficPolicies} {
		if !k.skipped(skip) {
			w.kinds = append(w.kinds, k.withStatus())
		}
	}
	return w
}

// withStatus returns a variant of a kind that reads objects as they are stored, with their status.
func (k kind) withStatus() kind {
	k.patient = func(f feed) feed { f.quiet = true; return f } // the source notes the same failures
	k.part = func(o metav1.Object) (mesh.Part, error) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return nil, errNoObject
		}
		return &routeObject{k, u}, nil
	}
	return k
}

// Run writes the statuses while this replica holds the Lease, until ctx ends. Then it releases the Lease.
func (w *RouteStatus) Run(ctx context.Context) error {
	if len(w.kinds) == 0 || !latest.Wait(ctx, w.source.Synced()) {
		<-ctx.Done()
		return ctx.Err()
	}
	return w.cluster.Lead(ctx, w.namespace, contract.RouteStatusLease, w.lead)
}

var routesResource = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: customVersion, Resource: "httproutes"}

// passEvery is the minimum time between two passes over all routes and policies.
const passEvery = time.Second

// lead watches the routes and policies, and writes each status that differs, until ctx ends.
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
		if !w.pass(ctx, m) { // pass fails if a write failed; notify then causes another pass
			w.notify()
		}
		if !latest.Wait(ctx, time.After(passEvery)) {
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

// pass writes each status that differs. It returns false if a write has failed.
func (w *RouteStatus) pass(ctx context.Context, m *mesh.Mesh) bool {
	w.mu.Lock()
	var all []*routeObject
	for _, r := range w.routes { // any order: sorted below
		all = append(all, r)
	}
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b *routeObject) int { return a.Key().Compare(b.Key()) })
	const tried = "writing the status of routes"
	var failed error
	// kinds whose status outriderd may not write, because the role is older than outriderd
	forbidden := map[mesh.Kind]bool{}
	for _, r := range all {
		if forbidden[r.kind.name] {
			continue
		}
		next, err := r.judged(m, time.Now())
		if err == nil && next != nil {
			err = w.write(ctx, r, next)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		failed = cmp.Or(failed, explain(tried, err))
		forbidden[r.kind.name] = apierrors.IsForbidden(err)
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) { // other requests would fail too
			break
		}
	}
	w.cluster.trouble.note(tried, failed)
	return failed == nil
}

// write sends one request. It ignores an object that was changed or deleted meanwhile, because the watch will
// deliver that.
func (w *RouteStatus) write(ctx context.Context, r *routeObject, next *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := w.cluster.dynamic.Resource(r.kind.api()).Namespace(next.GetNamespace()).UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// A routeView contains the parts of an HTTPRoute or a GRPCRoute on which its status depends.
type routeView struct {
	spec    *mesh.RouteSpec
	err     error // the reason why the route is not used; nil: it is used
	rules   int
	parents []gatewayv1.ParentReference
	status  []gatewayv1.RouteParentStatus
}

// view reads a route. It returns false if the route's form is unknown; the source reports that.
func (r *routeObject) view() (routeView, bool) {
	from := func(into any) bool {
		return runtime.DefaultUnstructuredConverter.FromUnstructured(r.object.Object, into) == nil
	}
	if r.kind.name == mesh.KindGRPC {
		var route gatewayv1.GRPCRoute
		ok := from(&route)
		spec, err := objects.GRPCRoute(&route)
		return routeView{spec, err, len(route.Spec.Rules), route.Spec.ParentRefs, route.Status.Parents}, ok
	}
	var route gatewayv1.HTTPRoute
	ok := from(&route)
	spec, err := objects.HTTPRoute(&route)
	return routeView{spec, err, len(route.Spec.Rules), route.Spec.ParentRefs, route.Status.Parents}, ok
}

// judged returns the object with its new status; nil if the status is already right.
func (r *routeObject) judged(m *mesh.Mesh, now time.Time) (*unstructured.Unstructured, error) {
	if isPolicy(r.kind.name) {
		return r.judgedPolicy(m, now)
	}
	v, ok := r.view()
	if !ok {
		return nil, nil
	}
	var ours []gatewayv1.RouteParentStatus
	for _, ref := range v.parents {
		if objects.IsService(&ref) {
			ours = append(ours, gatewayv1.RouteParentStatus{ParentRef: ref, Conditions: v.conditions(m, v.spec.Parents[len(ours)])})
		}
	}
	next := statusEntries(v.status, ours, now)
	if sameEntries(v.status, next) {
		return nil, nil
	}
	return r.withStatus("parents", &gatewayv1.RouteStatus{Parents: next})
}

// statusEntries returns the entries of other controllers, followed by ours. If a condition has not changed,
// it keeps its transition time; otherwise the transition time is set to now.
func statusEntries(is, ours []gatewayv1.RouteParentStatus, now time.Time) []gatewayv1.RouteParentStatus {
	out := slices.DeleteFunc(slices.Clone(is), func(e gatewayv1.RouteParentStatus) bool { return e.ControllerName == ControllerName })
	for _, next := range ours {
		conditions := next.Conditions
		next.ControllerName, next.Conditions = ControllerName, nil
		for _, e := range is {
			if e.ControllerName == ControllerName && equality.Semantic.DeepEqual(e.ParentRef, next.ParentRef) {
				next.Conditions = slices.DeleteFunc(slices.Clone(e.Conditions), func(had metav1.Condition) bool {
					return meta.FindStatusCondition(conditions, had.Type) == nil
				})
			}
		}
		for _, c := range conditions {
			c.LastTransitionTime = metav1.NewTime(now)
			meta.SetStatusCondition(&next.Conditions, c)
		}
		out = append(out, next)
	}
	return out
}

// withStatus returns a copy of the object in which a list of its status is replaced.
func (r *routeObject) withStatus(list string, status any) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, err
	}
	if raw[list] == nil {
		raw[list] = []any{}
	}
	out := r.object.DeepCopy()
	return out, unstructured.SetNestedField(out.Object, raw[list], "status", list)
}

// sameEntries reports whether two statuses have the same entries, in any order.
func sameEntries(is, next []gatewayv1.RouteParentStatus) bool {
	return len(is) == len(next) && !slices.ContainsFunc(next, func(n gatewayv1.RouteParentStatus) bool {
		return !slices.ContainsFunc(is, func(i gatewayv1.RouteParentStatus) bool { return equality.Semantic.DeepEqual(i, n) })
	})
}

// reasonConflicted is defined by GEP-1294 for a route that is not used because a route of another kind has
// precedence. The package of the Gateway API has no constant for it.
const reasonConflicted gatewayv1.RouteConditionReason = "Conflicted"

// conditions returns the conditions for one parent.
func (v *routeView) conditions(m *mesh.Mesh, p mesh.Parent) []metav1.Condition {
	out := v.accepted(m, p)
	for i := range out {
		if out[i].ObservedGeneration == 0 {
			out[i].ObservedGeneration = v.spec.Generation
		}
	}
	resolved := v.resolved(m, p)
	resolved.ObservedGeneration = v.spec.Generation
	return append(out, resolved)
}

// accepted returns the condition for whether the route is used for a parent, and in which generation.
func (v *routeView) accepted(m *mesh.Mesh, p mesh.Parent) []metav1.Condition {
	is := func(reason gatewayv1.RouteConditionReason, format string, args ...any) []metav1.Condition {
		return []metav1.Condition{condition(gatewayv1.RouteConditionAccepted, reason, fmt.Sprintf(format, args...))}
	}
	s := m.ByName(p.Namespace, p.Name)
	if s == nil || !m.Visible(s, v.spec.Namespace) {
		return is(gatewayv1.RouteReasonNoMatchingParent, "there is no Service %s/%s", p.Namespace, p.Name)
	}
	ports := p.Ports(s)
	if len(ports) == 0 {
		return is(gatewayv1.RouteReasonNoMatchingParent, "Service %s/%s has no such port", p.Namespace, p.Name)
	}
	ports = slices.DeleteFunc(ports, func(p mesh.Port) bool { return !p.Protocol.IsHTTP() && p.Protocol != mesh.Unknown })
	if len(ports) == 0 {
		return is(gatewayv1.RouteReasonNoMatchingParent, "Service %s/%s declares no such port for requests: see its appProtocol, or the port's name", p.Namespace, p.Name)
	}
	if v.err != nil {
		return v.invalid(m.Route(v.spec.Key()))
	}
	overridden := s.Overridden(v.spec, ports)
	switch excess := s.Excess(v.spec); {
	case excess != "":
		return is(gatewayv1.RouteReasonUnsupportedValue, "%s", excess)
	case len(overridden) == len(ports):
		return is(reasonConflicted, "%s", mesh.OverriddenMessage(p.Namespace, p.Name, overridden))
	case len(overridden) > 0:
		return is(gatewayv1.RouteReasonAccepted, "%s", mesh.OverriddenMessage(p.Namespace, p.Name, overridden))
	}
	return is(gatewayv1.RouteReasonAccepted, "")
}

// invalid returns the conditions of an invalid route. used is its last valid version, which stays in use;
// nil: there is none. If some rules of the route are valid, the Gateway API calls it partially invalid.
func (v *routeView) invalid(used *mesh.RouteSpec) []metav1.Condition {
	message := v.err.Error()
	if used == nil {
		return []metav1.Condition{condition(gatewayv1.RouteConditionAccepted, gatewayv1.RouteReasonUnsupportedValue, message+"; the route is not used")}
	}
	if !v.partly() {
		return []metav1.Condition{condition(gatewayv1.RouteConditionAccepted, gatewayv1.RouteReasonUnsupportedValue,
			fmt.Sprintf("%s; generation %d stays in use", message, used.Generation))}
	}
	accepted := condition(gatewayv1.RouteConditionAccepted, gatewayv1.RouteReasonAccepted, fmt.Sprintf("generation %d is in use", used.Generation))
	accepted.ObservedGeneration = used.Generation
	partly := condition(gatewayv1.RouteConditionPartiallyInvalid, gatewayv1.RouteReasonUnsupportedValue,
		fmt.Sprintf("Fall Back to generation %d: %s", used.Generation, message))
	partly.Status = metav1.ConditionTrue
	return []metav1.Condition{accepted, partly}
}

// partly reports whether the errors concern only some of the rules.
func (v *routeView) partly() bool {
	var all objects.FieldErrors
	if !errors.As(v.err, &all) {
		return false
	}
	invalid := map[string]bool{}
	for _, e := range all {
		rule, _, _ := strings.Cut(e.Field, "]")
		if !strings.HasPrefix(rule, "spec.rules[") {
			return false
		}
		invalid[rule] = true
	}
	return len(invalid) < v.rules
}

// resolved returns the condition for whether all backends exist and are used. If there are several reasons,
// the condition contains the first.
func (v *routeView) resolved(m *mesh.Mesh, p mesh.Parent) metav1.Condition {
	reason := gatewayv1.RouteReasonResolvedRefs
	var messages []string
	v.spec.EachBackend(func(to *mesh.Backend) {
		why := m.Resolution(v.spec, p, to)
		if why == mesh.Resolved {
			return
		}
		if messages == nil {
			reason = gatewayv1.RouteConditionReason(why)
		}
		if message := mesh.Unresolved(why, to); len(messages) < maxUnresolved && !slices.Contains(messages, message) {
			messages = append(messages, message)
		}
	})
	return condition(gatewayv1.RouteConditionResolvedRefs, reason, strings.Join(messages, "; "))
}

// maxUnresolved is the maximum number of backends of a route that the message mentions.
const maxUnresolved = 8

// condition returns a condition. It is true if its reason is Accepted or ResolvedRefs.
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

// maxMessage is the longest message of a condition that the API accepts.
const maxMessage = 32768
