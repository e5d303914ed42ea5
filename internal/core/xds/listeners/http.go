package listeners

import (
	"time"

	mutation "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	values "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	mutate "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	demand "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	filterstate "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_filter_state/v3"
	codec "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	early "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/rbac"
	"outrider.dev/internal/core/xds/retry"
	"outrider.dev/internal/core/xds/routes"
)

const (
	// clusterHeader contains the name of a request's cluster. It is set before the route is selected,
	// overwriting what the client sent, and removed afterwards.
	clusterHeader = "x-outrider-to"

	// earlyFirstUseTimeout is for connections that began before the proxy started: there may be thousands at the
	// same moment. On a busy machine, 2,000 of them took 13 s. The wait may be this long, because the control
	// plane was reachable just before.
	earlyFirstUseTimeout = 30 * time.Second
)

// connectionManager returns the common part of all HTTP filters. Envoy changes requests and responses
// as little as it can, and its own responses get our texts.
func connectionManager(name string, replies ...localReply) *hcm.HttpConnectionManager {
	return &hcm.HttpConnectionManager{
		StatPrefix:                 name,
		StreamIdleTimeout:          durationpb.New(0),
		ServerHeaderTransformation: hcm.HttpConnectionManager_PASS_THROUGH,
		HttpProtocolOptions:        &core.Http1ProtocolOptions{AcceptHttp_10: true, DefaultHostForHttp_10: "localhost"},
		CommonHttpProtocolOptions:  &core.HttpProtocolOptions{MaxHeadersCount: wrapperspb.UInt32(1000)},
		MaxRequestHeadersKb:        wrapperspb.UInt32(128),
		UpgradeConfigs:             []*hcm.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		LocalReplyConfig:           localReplies(name, replies),
	}
}

// httpRouteByAddress sends requests to the cluster of their address. Its virtual host and routes do not depend on the
// mesh.
func httpRouteByAddress(timeout time.Duration) *listener.Filter {
	m := connectionManager("outbound", noCluster, noControlPlane, noEndpoint, refused, ended)
	m.EarlyHeaderMutationExtensions = setHeader(clusterHeader, names.HTTP+"%DOWNSTREAM_LOCAL_ADDRESS%")
	m.RouteSpecifier = singleRoute("by-address", &route.VirtualHost{Name: "any", RequestHeadersToRemove: []string{clusterHeader}}, &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_ClusterHeader{ClusterHeader: clusterHeader},
		// Only the endpoint that leads to the internal listener has a host name, see clusters.Internal.
		HostRewriteSpecifier: &route.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)},
		Timeout:              durationpb.New(0),
		RetryPolicy:          retry.Default(),
	})
	all := m.GetRouteConfig().VirtualHosts[0]
	all.Routes = retry.Routes(all.Routes...)
	m.HttpFilters = []*hcm.HttpFilter{onDemand(timeout), ToRouter(outboundRouter())}
	return httpManager(m)
}

// httpRouteByService sends requests in the internal listener to the virtual host of their service. Only here can
// a request wait for a virtual host, and Envoy has no timeout for that. So the idle timeout ends streams without
// a route, and each route disables it for its own streams. Usually the virtual host is there already, because it
// is sent with the cluster that leads to this listener.
func (b Builder) httpRouteByService(sh features.Features) *listener.Filter {
	m := connectionManager(names.Internal, noCluster, noControlPlane, noVirtualHost, noRoute, timedOut, noEndpoint, refused, ended)
	m.StreamIdleTimeout = durationpb.New(b.firstUse(sh))
	r := outboundRouter()
	r.SuppressEnvoyHeaders = true
	m.RouteSpecifier = &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: names.Internal, ConfigSource: message.ADS(0)}}
	m.HttpFilters = []*hcm.HttpFilter{
		message.HTTPFilter("envoy.filters.http.set_filter_state", &filterstate.Config{
			OnRequestHeaders: []*values.FilterStateValue{setState(routes.OriginalHost, "%REQ("+routes.HostHeader+")%")},
		}),
		onDemand(b.firstUse(sh)), routes.InjectsFaults(), ToRouter(r),
	}
	return httpManager(m)
}

// httpToApplication sends requests to the proxy's own application, if g allows them.
func httpToApplication(g rbac.Guard) *listener.Filter {
	m := connectionManager("inbound", unreached, unanswered)
	m.RouteSpecifier = singleRoute("inbound", &route.VirtualHost{Name: "app"}, &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_Cluster{Cluster: names.Application},
		Timeout:          durationpb.New(0),
		// The application may close an idle connection at the moment when it is reused.
		RetryPolicy: &route.RetryPolicy{RetryOn: "reset-before-request", NumRetries: wrapperspb.UInt32(2)},
	})
	// The header contains the client's identity from mutual TLS; it is removed from requests without
	// mutual TLS. As in Istio: istio/istio, pilot/pkg/networking/core/listener_inbound.go.
	m.ForwardClientCertDetails = hcm.HttpConnectionManager_APPEND_FORWARD
	m.SetCurrentClientCertDetails = &hcm.HttpConnectionManager_SetCurrentClientCertDetails{Subject: wrapperspb.Bool(true), Uri: true, Dns: true}
	m.HttpFilters = []*hcm.HttpFilter{ToRouter(&router.Router{SuppressEnvoyHeaders: true})}
	g.Requests(m)
	return httpManager(m)
}

// singleRoute returns a route configuration with one virtual host for all domains and one route for all
// requests.
func singleRoute(name string, host *route.VirtualHost, action *route.RouteAction) *hcm.HttpConnectionManager_RouteConfig {
	host.Domains = []string{"*"}
	host.ResponseHeadersToRemove = retry.Private()
	host.Routes = []*route.Route{{Match: message.Anything(), Action: &route.Route_Route{Route: action}}}
	return &hcm.HttpConnectionManager_RouteConfig{RouteConfig: &route.RouteConfiguration{
		Name: name, ValidateClusters: wrapperspb.Bool(false), VirtualHosts: []*route.VirtualHost{host},
	}}
}

func httpManager(m *hcm.HttpConnectionManager) *listener.Filter {
	return message.NetworkFilter("envoy.filters.network.http_connection_manager", m)
}

// onDemand returns the filter that subscribes to missing clusters and virtual hosts.
func onDemand(timeout time.Duration) *hcm.HttpFilter {
	return message.HTTPFilter("envoy.filters.http.on_demand", &demand.OnDemand{
		Odcds: &demand.OnDemandCds{Source: message.ADS(0), Timeout: durationpb.New(timeout)},
	})
}

// outboundRouter returns a router that does not believe an endpoint's private headers, see [retry.Checked].
func outboundRouter() *router.Router {
	return &router.Router{UpstreamHttpFilters: []*hcm.HttpFilter{
		message.HTTPFilter("envoy.filters.http.header_mutation", &mutate.HeaderMutation{Mutations: &mutate.Mutations{ResponseMutations: retry.Checked()}}),
		message.HTTPFilter("envoy.filters.http.upstream_codec", &codec.UpstreamCodec{}),
	}}
}

// ToRouter returns the last filter of requests.
func ToRouter(r *router.Router) *hcm.HttpFilter {
	return message.HTTPFilter("envoy.filters.http.router", r)
}

func setHeader(name, value string) []*core.TypedExtensionConfig {
	set := message.Header(name, value, core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	return []*core.TypedExtensionConfig{message.Extension("envoy.http.early_header_mutation.header_mutation", &early.HeaderMutation{
		Mutations: []*mutation.HeaderMutation{{Action: &mutation.HeaderMutation_Append{Append: set}}},
	})}
}

// setState sets filter state that later filters of the same connection or stream can read.
func setState(key, format string) *values.FilterStateValue {
	out := &values.FilterStateValue{
		Key: &values.FilterStateValue_ObjectKey{ObjectKey: key},
		Value: &values.FilterStateValue_FormatString{FormatString: &core.SubstitutionFormatString{
			OmitEmptyValues: true,
			Format:          &core.SubstitutionFormatString_TextFormatSource{TextFormatSource: message.Inline(format)},
		}},
	}
	if key == routes.OriginalHost {
		out.FactoryKey = "envoy.string"
	}
	return out
}
