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

// A kind is a kind of objects from which the mesh is built.
type kind struct {
	name mesh.Kind
	feed func(*Cluster) feed
	part func(metav1.Object) (mesh.Part, error)
	// definition is the name of the kind's CustomResourceDefinition, which may be created and deleted at any
	// time; empty: the kind is built in.
	definition string
	version    string // API version of a custom kind
	// with names a resource: if that is in the list of skipped kinds, this kind is skipped too. Empty: the
	// kind's own resource.
	with string
	// patient returns a variant of a feed that waits while the API server forbids reading it. It may be nil.
	patient func(feed) feed
}

// skipIgnored is the entry of the list of skipped kinds that skips all kinds of other meshes: they are only
// reported as ignored.
const skipIgnored = "ignored"

// OptionalKinds lists the kinds that a [Source] can skip. outriderd needs no permission for a skipped kind.
func OptionalKinds() []string {
	var out []string
	for _, k := range kinds {
		if name := k.resource(); name != "" && k.with == "" {
			out = append(out, name)
		}
	}
	return append(out, skipIgnored)
}

// skipped reports whether skip, a list of [OptionalKinds], contains the kind.
func (k kind) skipped(skip []string) bool {
	return slices.Contains(skip, cmp.Or(k.with, k.resource()))
}

// withRoutes returns a variant of a kind that is skipped together with HTTPRoutes. It reads the first version
// that is served: a cluster may have only older versions of the kind, whose fields are the same.
func withRoutes(k kind) kind {
	k.with = routesResource.Resource
	resource, group, _ := strings.Cut(k.definition, ".")
	k.feed = func(c *Cluster) feed { return c.newestOf(group, resource) }
	return k
}

// resource returns the resource name of a custom kind; empty for a built-in kind.
func (k kind) resource() string {
	resource, _, _ := strings.Cut(k.definition, ".")
	return resource
}

// read returns the feed f of the kind, or its patient variant if there is one.
func (k kind) read(f feed) feed {
	if k.patient == nil {
		return f
	}
	return k.patient(f)
}

// alive excludes pods that have ended, because they have no traffic and Jobs leave many of them.
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

// authorization reads a policy of any version, because a policy that cannot be read would not be enforced.
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

// customVersion is the version of the stable custom kinds.
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
			// The definition may be newer than outriderd, so unknown fields are ignored.
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

// some converts a nil pointer to a nil interface.
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
