package resource_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/xds"
)

// references maps the fields that name another resource to that resource's type.
var references = map[protoreflect.FullName]string{
	"envoy.config.route.v3.RouteAction.cluster":                                         xds.ClusterType,
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster":                     xds.ClusterType,
	"envoy.config.route.v3.WeightedCluster.ClusterWeight.name":                          xds.ClusterType,
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.cluster":                    xds.ClusterType,
	"envoy.config.core.v3.GrpcService.EnvoyGrpc.cluster_name":                           xds.ClusterType,
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig.service_name":                     xds.EndpointType,
	"envoy.extensions.filters.network.http_connection_manager.v3.Rds.route_config_name": xds.RouteType,
	"envoy.config.core.v3.EnvoyInternalAddress.server_listener_name":                    xds.ListenerType,
	"envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig.name":                    "secret",
	"envoy.config.endpoint.v3.ClusterLoadAssignment.cluster_name":                       "", // its own name
	"envoy.config.route.v3.RouteAction.cluster_header":                                  "", // named by the request, on demand
}

// ofTheBootstrap lists names that are defined only in Envoy's bootstrap, by our agent or by Istio's agent. A
// bootstrap that is written by hand needs them, if the node has the metadata SECRETS.
var ofTheBootstrap = []string{
	contract.SecretsCluster, contract.WorkloadSecret, contract.RootsSecret, contract.IstioWorkloadSecret, contract.IstioRootsSecret,
}

// Each name in a resource is the name of another resource from the control plane, so the only names
// that an Envoy needs in its bootstrap are listed in ofTheBootstrap.
func TestResourcesAreClosed(t *testing.T) {
	v := snapshotOf(t, observed(t), parts()...)
	proxies := map[string]*xds.Proxy{
		"by our agent": client(withAgent), "with files": client(),
		"by Istio's agent": client(func(p *xds.Proxy) { p.Metadata = map[string]string{contract.MetadataIstioVersion: "1.32"} }),
	}
	for name, p := range proxies {
		given := map[string][]string{}
		for _, typeURL := range types {
			for _, r := range flatten(v.Wildcard(p, typeURL, nil), typeURL) {
				given[r.Type] = append(given[r.Type], r.Resource.Name)
			}
		}
		for _, typeURL := range types {
			for _, r := range flatten(v.Wildcard(p, typeURL, nil), typeURL) {
				walk(t, message(t, r.Resource), func(field protoreflect.FullName, typeURL, to string) {
					// Envoy subscribes to missing routes and endpoints, but not to a missing cluster or
					// listener that a listener names.
					onSubscription := typeURL == xds.RouteType || typeURL == xds.EndpointType
					if !slices.Contains(given[typeURL], to) && !(onSubscription && v.Named(p, typeURL, to).Resource != nil) && !slices.Contains(ofTheBootstrap, to) {
						t.Errorf("%s: %s names %q by %s: not sent, and not in the bootstrap", name, r.Resource.Name, to, field)
					}
				})
			}
		}
	}
	p := client()
	for name, resources := range goldenCases(t) {
		for _, r := range resources {
			walk(t, message(t, r.Resource), func(field protoreflect.FullName, typeURL, to string) {
				if v.Named(p, typeURL, to).Resource == nil && !slices.Contains(ofTheBootstrap, to) {
					t.Errorf("%s: %s names %q by %s: nothing has that name", name, r.Resource.Name, to, field)
				}
			})
		}
	}
}

// walk calls found for each reference in a message, recursively.
func walk(t *testing.T, m proto.Message, found func(field protoreflect.FullName, typeURL, name string)) {
	t.Helper()
	if packed, ok := m.(*anypb.Any); ok {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		walk(t, inner, found)
		return
	}
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		typeURL, known := references[field.FullName()]
		switch {
		case field.Kind() == protoreflect.StringKind && !field.IsList() && !field.IsMap():
			if known && typeURL != "" {
				found(field.FullName(), typeURL, value.String())
			}
			if !known && strings.Contains(string(field.Name()), "cluster") {
				t.Errorf("%s is not in the table of references", field.FullName())
			}
		case field.Kind() != protoreflect.MessageKind:
		case field.IsList():
			for i := range value.List().Len() {
				walk(t, value.List().Get(i).Message().Interface(), found)
			}
		case field.IsMap():
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				if field.MapValue().Message() != nil {
					walk(t, v.Message().Interface(), found)
				}
				return true
			})
		default:
			walk(t, value.Message().Interface(), found)
		}
		return true
	})
}
