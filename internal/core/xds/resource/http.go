package resource

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
	previous "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	priorities "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/core/mesh"
)

const (
	// clusterHeader has the name of a request's cluster. It is set before the route is
	// selected, whatever the client sent, and removed afterwards.
	clusterHeader = "x-outrider-to"

	// originalHost has the client's authority while the request is in the internal listener:
	// Envoy's header has it on the way there, and must not reach the application.
	originalHost = "outrider.host"
	hostHeader   = "x-envoy-original-host"

	// unreachedHeader is in the response of an inbound proxy that had no connection to its
	// application: no byte of the request reached it, so the request may go to another
	// endpoint, whatever its method. Both proxies remove it from the responses of
	// applications, and the client does not get it. It counts with mutual TLS only, and is sent
	// with it only: a server without a proxy may pass on the header of one that it has called.
	unreachedHeader = "x-outrider-unreached"

	// relayedFirstUseTimeout is no more than a safety net: the agent responds when the control
	// plane is away. While that is slow, a first use waits for as long as its client or its route.
	relayedFirstUseTimeout = 5 * time.Minute
	// relayedEndpointsTimeout is shorter: Envoy subscribes to no other cluster meanwhile.
	relayedEndpointsTimeout = 15 * time.Second

	// earlyFirstUseTimeout is for connections that came before the proxy started: they may
	// be thousands at the same moment, and the control plane was reachable just before. On a
	// busy machine 2,000 took 13 s.
	earlyFirstUseTimeout = 30 * time.Second
)

// firstUse is how long a proxy waits for the control plane when it uses a service for the first
// time.
func (b *builder) firstUse(sh features) time.Duration {
	if sh.relayed {
		return relayedFirstUseTimeout
	}
	return b.firstUseTimeout
}

// connectionManager is the part of HTTP that is the same everywhere: requests and responses
// are changed as little as Envoy can. It has the texts of Envoy's own responses.
func connectionManager(name string, replies ...localReply) *hcm.HttpConnectionManager {
	return &hcm.HttpConnectionManager{
		StatPrefix:                 name,
		StreamIdleTimeout:          duration(0),
		ServerHeaderTransformation: hcm.HttpConnectionManager_PASS_THROUGH,
		HttpProtocolOptions:        &core.Http1ProtocolOptions{AcceptHttp_10: true, DefaultHostForHttp_10: "localhost"},
		CommonHttpProtocolOptions:  &core.HttpProtocolOptions{MaxHeadersCount: uint32Value(1000)},
		MaxRequestHeadersKb:        uint32Value(128),
		UpgradeConfigs:             []*hcm.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		LocalReplyConfig:           localReplies(name, replies),
	}
}

// httpRouteByAddress sends requests to the cluster of their address. There is one virtual
// host and one route, and neither depends on the mesh.
func httpRouteByAddress(timeout time.Duration) *listener.Filter {
	m := connectionManager("outbound", noCluster, noControlPlane, noEndpoint, refused)
	m.EarlyHeaderMutationExtensions = setHeader(clusterHeader, httpPrefix+"%DOWNSTREAM_LOCAL_ADDRESS%")
	m.RouteSpecifier = singleRoute("by-address", &route.VirtualHost{Name: "any", RequestHeadersToRemove: []string{clusterHeader}}, &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_ClusterHeader{ClusterHeader: clusterHeader},
		// Only the internal listener is an endpoint with a host name, see internalTo.
		HostRewriteSpecifier: &route.RouteAction_AutoHostRewrite{AutoHostRewrite: on()},
		Timeout:              duration(0),
		RetryPolicy:          defaultRetries(),
	})
	m.HttpFilters = []*hcm.HttpFilter{onDemand(timeout), toRouter(outboundRouter())}
	return httpManager(m)
}

// httpRouteByService sends the requests to the internal listener by the virtual host of
// their service. It is the only place where a request waits for a virtual host, and Envoy
// has no timeout for that: so the idle timeout ends a stream without a route, and each
// route disables it for its own streams. Mostly the virtual host is there before: it is
// sent with the cluster that leads here.
func (b *builder) httpRouteByService(sh features) *listener.Filter {
	m := connectionManager(internalName, noCluster, noControlPlane, noVirtualHost, noRoute, timedOut, noEndpoint, refused)
	m.StreamIdleTimeout = duration(b.firstUse(sh))
	r := outboundRouter()
	r.SuppressEnvoyHeaders = true
	m.RouteSpecifier = &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: internalName, ConfigSource: ads(0)}}
	m.HttpFilters = []*hcm.HttpFilter{
		httpFilter("envoy.filters.http.set_filter_state", &filterstate.Config{
			OnRequestHeaders: []*values.FilterStateValue{setState(originalHost, "%REQ("+hostHeader+")%")},
		}),
		onDemand(b.firstUse(sh)), injectsFaults(), toRouter(r),
	}
	return httpManager(m)
}

// httpToApplication sends requests to the proxy's own application, if g lets them in.
func httpToApplication(g guard) *listener.Filter {
	m := connectionManager("inbound", unreached)
	m.RouteSpecifier = singleRoute("inbound", &route.VirtualHost{Name: "app"}, &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_Cluster{Cluster: applicationCluster},
		Timeout:          duration(0),
		// The application may close an idle connection just as it is reused.
		RetryPolicy: &route.RetryPolicy{RetryOn: "reset-before-request", NumRetries: uint32Value(2)},
	})
	// The client's identity, by mutual TLS; the header of a client without it is removed. As
	// in Istio: istio/istio, pilot/pkg/networking/core/listener_inbound.go.
	m.ForwardClientCertDetails = hcm.HttpConnectionManager_APPEND_FORWARD
	m.SetCurrentClientCertDetails = &hcm.HttpConnectionManager_SetCurrentClientCertDetails{Subject: on(), Uri: true, Dns: true}
	m.HttpFilters = []*hcm.HttpFilter{toRouter(&router.Router{SuppressEnvoyHeaders: true})}
	g.requests(m)
	return httpManager(m)
}

// singleRoute is a route configuration with one virtual host for all domains and one route
// for all requests.
func singleRoute(name string, host *route.VirtualHost, action *route.RouteAction) *hcm.HttpConnectionManager_RouteConfig {
	host.Domains = []string{"*"}
	host.ResponseHeadersToRemove = []string{unreachedHeader}
	host.Routes = []*route.Route{{Match: anything(), Action: &route.Route_Route{Route: action}}}
	return &hcm.HttpConnectionManager_RouteConfig{RouteConfig: &route.RouteConfiguration{
		Name: name, ValidateClusters: off(), VirtualHosts: []*route.VirtualHost{host},
	}}
}

func httpManager(m *hcm.HttpConnectionManager) *listener.Filter {
	return network("envoy.filters.network.http_connection_manager", m)
}

func anything() *route.RouteMatch {
	return &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}}
}

// defaultRetries retries requests that no application has begun to read, on another endpoint
// if there is one. With two endpoints the load balancer selects the failed one again as
// often as not: with ten selections in one of a thousand retries.
//
// A connection that fails ends a try of each request that waits for one to that endpoint, also
// of those that came later: without pauses, many requests use up their tries within milliseconds.
func defaultRetries() *route.RetryPolicy {
	p := retriesOf("connect-failure,refused-stream,reset-before-request,retriable-headers")
	p.RetryHostPredicate = []*route.RetryPolicy_RetryHostPredicate{{
		Name:       "envoy.retry_host_predicates.previous_hosts",
		ConfigType: &route.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: typed(&previous.PreviousHostsPredicate{})},
	}}
	p.HostSelectionRetryMaxAttempts = 10
	// The endpoints that are near have a priority of their own, which is left when a try
	// there failed: see endpoints.
	p.RetryPriority = &route.RetryPolicy_RetryPriority{
		Name:       "envoy.retry_priorities.previous_priorities",
		ConfigType: &route.RetryPolicy_RetryPriority_TypedConfig{TypedConfig: typed(&priorities.PreviousPrioritiesConfig{UpdateFrequency: 1})},
	}
	return p
}

// retriesOf retries after these conditions, at any endpoint.
func retriesOf(on string) *route.RetryPolicy {
	return &route.RetryPolicy{
		RetryOn:      on,
		NumRetries:   uint32Value(connectTries - 1),
		RetryBackOff: &route.RetryPolicy_RetryBackOff{BaseInterval: duration(firstPause), MaxInterval: duration(longestPause)},
		RetriableHeaders: []*route.HeaderMatcher{{
			Name: unreachedHeader, HeaderMatchSpecifier: &route.HeaderMatcher_StringMatch{StringMatch: &matcher.StringMatcher{
				MatchPattern: &matcher.StringMatcher_Prefix{Prefix: "TLS"},
			}},
		}},
	}
}

// onDemand subscribes to missing clusters and virtual hosts.
func onDemand(timeout time.Duration) *hcm.HttpFilter {
	return httpFilter("envoy.filters.http.on_demand", &demand.OnDemand{
		Odcds: &demand.OnDemandCds{Source: ads(0), Timeout: duration(timeout)},
	})
}

// outboundRouter is a router that replaces the value of unreachedHeader in a response by the
// version of TLS with the endpoint. Without TLS that is none.
func outboundRouter() *router.Router {
	return &router.Router{UpstreamHttpFilters: []*hcm.HttpFilter{
		httpFilter("envoy.filters.http.header_mutation", &mutate.HeaderMutation{Mutations: &mutate.Mutations{
			ResponseMutations: []*mutation.HeaderMutation{{Action: &mutation.HeaderMutation_Append{
				Append: header(unreachedHeader, "%UPSTREAM_TLS_VERSION%", core.HeaderValueOption_OVERWRITE_IF_EXISTS),
			}}},
		}}),
		httpFilter("envoy.filters.http.upstream_codec", &codec.UpstreamCodec{}),
	}}
}

func toRouter(r *router.Router) *hcm.HttpFilter { return httpFilter("envoy.filters.http.router", r) }

func httpFilter(name string, config proto.Message) *hcm.HttpFilter {
	return &hcm.HttpFilter{Name: name, ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: typed(config)}}
}

func setHeader(name, value string) []*core.TypedExtensionConfig {
	return []*core.TypedExtensionConfig{{
		Name: "envoy.http.early_header_mutation.header_mutation",
		TypedConfig: typed(&early.HeaderMutation{Mutations: []*mutation.HeaderMutation{{
			Action: &mutation.HeaderMutation_Append{Append: header(name, value, core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)},
		}}}),
	}}
}

// setState sets filter state for the later filters of the same connection or stream.
func setState(key, format string) *values.FilterStateValue {
	out := &values.FilterStateValue{
		Key: &values.FilterStateValue_ObjectKey{ObjectKey: key},
		Value: &values.FilterStateValue_FormatString{FormatString: &core.SubstitutionFormatString{
			OmitEmptyValues: true,
			Format: &core.SubstitutionFormatString_TextFormatSource{TextFormatSource: &core.DataSource{
				Specifier: &core.DataSource_InlineString{InlineString: format},
			}},
		}},
	}
	if key == originalHost {
		out.FactoryKey = "envoy.string"
	}
	return out
}

func header(name, value string, how core.HeaderValueOption_HeaderAppendAction) *core.HeaderValueOption {
	return &core.HeaderValueOption{Header: &core.HeaderValue{Key: name, Value: value}, AppendAction: how}
}

// mayBeHTTP reports whether HTTP is detected on a port.
func mayBeHTTP(p mesh.Protocol) bool { return p.IsHTTP() || p == mesh.Unknown }
