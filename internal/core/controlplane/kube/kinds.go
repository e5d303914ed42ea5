package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/objects"
)

// A kind of objects that the mesh is made of.
type kind struct {
	name mesh.Kind
	feed func(*Cluster) feed
	part func(metav1.Object) (mesh.Part, error)
	// definition is the name of its CustomResourceDefinition, which may be created and
	// deleted at any time; empty: the kind is built in.
	definition string
	version    string // of a custom kind
	// with is the resource that it is skipped with; empty: its own.
	with string
	// patient, if set, changes each feed of the kind so that it waits while it is forbidden.
	patient func(feed) feed
}

// skipIgnored skips all kinds of other meshes, which are only reported.
const skipIgnored = "ignored"

// OptionalKinds are what a [Source] can skip: then no permission for it is needed.
func OptionalKinds() []string {
	var out []string
	for _, k := range kinds {
		if name := k.resource(); name != "" && k.with == "" {
			out = append(out, name)
		}
	}
	return append(out, skipIgnored)
}

// skipped reports whether the kind is among those of [OptionalKinds] to be skipped.
func (k kind) skipped(skip []string) bool {
	return slices.Contains(skip, cmp.Or(k.with, k.resource()))
}

// withRoutes is a kind that is skipped with HTTPRoutes. Its API may have older versions alone, which
// have the same fields.
func withRoutes(k kind) kind {
	k.with = routesResource.Resource
	resource, group, _ := strings.Cut(k.definition, ".")
	k.feed = func(c *Cluster) feed { return c.newestOf(group, resource) }
	return k
}

// resource is that of a kind that a cluster need not have; empty for one that is built in.
func (k kind) resource() string {
	resource, _, _ := strings.Cut(k.definition, ".")
	return resource
}

// read is a feed of the kind.
func (k kind) read(f feed) feed {
	if k.patient == nil {
		return f
	}
	return k.patient(f)
}

// alive leaves out the pods that have ended: they have no traffic, and Jobs leave many.
var alive = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)

var kinds = []kind{
	{name: mesh.KindService, part: part(objects.Service), feed: func(c *Cluster) feed {
		return feedOf("services", c.core.CoreV1().Services(metav1.NamespaceAll), nil)
	}},
	{name: mesh.KindSlice, part: part(objects.EndpointSlice), feed: func(c *Cluster) feed {
		return feedOf("endpointslices", c.core.DiscoveryV1().EndpointSlices(metav1.NamespaceAll), nil)
	}},
	{name: mesh.KindPod, part: part(objects.Pod), feed: func(c *Cluster) feed {
		return feedOf("pods", c.core.CoreV1().Pods(metav1.NamespaceAll), alive)
	}},
	custom(mesh.KindRoute, objects.HTTPRoute, "gateway.networking.k8s.io", "httproutes"),
	withRoutes(custom(mesh.KindGRPC, objects.GRPCRoute, "gateway.networking.k8s.io", "grpcroutes")),
	withRoutes(custom(mesh.KindGrant, objects.ReferenceGrant, "gateway.networking.k8s.io", "referencegrants")),
	custom(mesh.KindPolicy, objects.PeerAuthentication, "security.istio.io", "peerauthentications"),
	{name: mesh.KindAuthorization, definition: "authorizationpolicies.security.istio.io", version: customVersion, part: authorization, feed: func(c *Cluster) feed {
		return c.newestOf("security.istio.io", "authorizationpolicies")
	}},
	custom(mesh.KindHost, objects.Host, "outrider.dev", "hosts"),
	backendPolicies, trafficPolicies,
}

// authorization reads a policy of whichever version: one that is not read would not be enforced.
func authorization(o metav1.Object) (mesh.Part, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, errNoObject
	}
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	return objects.AuthorizationPolicy(raw)
}

// customVersion is the version of the custom kinds that are stable.
const customVersion = "v1"

func custom[T any, P interface {
	comparable
	mesh.Part
}](name mesh.Kind, from func(*T) (P, error), group, resource string) kind {
	return customOf(name, from, schema.GroupVersionResource{Group: group, Version: customVersion, Resource: resource})
}

func customOf[T any, P interface {
	comparable
	mesh.Part
}](name mesh.Kind, from func(*T) (P, error), of schema.GroupVersionResource) kind {
	return kind{
		name: name, definition: of.Resource + "." + of.Group, version: of.Version,
		feed: func(c *Cluster) feed { return feedOf(of.Resource, c.dynamic.Resource(of), nil) },
		part: func(o metav1.Object) (mesh.Part, error) {
			u, ok := o.(*unstructured.Unstructured)
			if !ok {
				return nil, errNoObject
			}
			var object T
			// The definition may be newer than outriderd: unknown fields are ignored.
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &object); err != nil {
				return nil, fmt.Errorf("does not match version %s as outriderd knows it: %w", of.Version, err)
			}
			return some(from(&object))
		},
	}
}

func part[T any, P interface {
	comparable
	mesh.Part
}](from func(*T) (P, error)) func(metav1.Object) (mesh.Part, error) {
	return func(o metav1.Object) (mesh.Part, error) {
		object, ok := o.(any).(*T)
		if !ok {
			return nil, errNoObject
		}
		return some(from(object))
	}
}

// some turns a nil pointer into a nil interface.
func some[P interface {
	comparable
	mesh.Part
}](p P, err error) (mesh.Part, error) {
	var none P
	if err != nil || p == none {
		return nil, err
	}
	return p, nil
}
