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
	// clusterHeader contains the name of a request's cluster. It is set before the route is selected,
	// overwriting what the client sent, and removed afterwards.
	clusterHeader = "x-outrider-to"

	// originalHost preserves the client's authority while the request is in the internal listener. On
	// the way there Envoy carries it in a header, which must not reach the application.
	originalHost = "outrider.host"
	hostHeader   = "x-envoy-original-host"

	// unreachedHeader is set in a response by an inbound proxy that could not connect to its
	// application: no byte of the request reached the application, so the request may be sent to
	// another endpoint, whatever its method. Both proxies remove it from the responses of applications,
	// and clients do not get it. It is sent and accepted with mutual TLS only, because a server without
	// a proxy may pass on the header from a server that it has called.
	unreachedHeader = "x-outrider-unreached"

	// relayedFirstUseTimeout is only a safety net, because the agent answers while the control plane is
	// away. If the control plane is slow, a first use waits until the timeout of its client or its
	// route.
	relayedFirstUseTimeout = 5 * time.Minute
	// relayedEndpointsTimeout is shorter, because Envoy subscribes to no other cluster meanwhile.
	relayedEndpointsTimeout = 15 * time.Second

	// earlyFirstUseTimeout is for connections that began before the proxy started: there may be
	// thousands at the same moment, and the control plane was reachable just before. On a busy machine
	// 2,000 took 13 s.
	earlyFirstUseTimeout = 30 * time.Second
)

// firstUse returns how long a proxy waits for the control plane when it uses a service for the first
// time.
func (b *builder) firstUse(sh features) time.Duration {
	if sh.relayed {
		return relayedFirstUseTimeout
	}
	return b.firstUseTimeout
}

// connectionManager returns the common part of all HTTP filters. Envoy changes requests and responses
// as little as it can, and its own responses get our texts.
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

// httpRouteByAddress sends requests to the cluster of their address. It has one virtual host with one
// route, neither of which depends on the mesh.
func httpRouteByAddress(timeout time.Duration) *listener.Filter {
	m := connectionManager("outbound", noCluster, noControlPlane, noEndpoint, refused)
	m.EarlyHeaderMutationExtensions = setHeader(clusterHeader, httpPrefix+"%DOWNSTREAM_LOCAL_ADDRESS%")
	m.RouteSpecifier = singleRoute("by-address", &route.VirtualHost{Name: "any", RequestHeadersToRemove: []string{clusterHeader}}, &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_ClusterHeader{ClusterHeader: clusterHeader},
		// Only the endpoint that leads to the internal listener has a host name, see internalTo.
		HostRewriteSpecifier: &route.RouteAction_AutoHostRewrite{AutoHostRewrite: on()},
		Timeout:              duration(0),
		RetryPolicy:          defaultRetries(),
	})
	m.HttpFilters = []*hcm.HttpFilter{onDemand(timeout), toRouter(outboundRouter())}
	return httpManager(m)
}

// httpRouteByService sends requests in the internal listener to the virtual host of their service. Only
// here can a request wait for a virtual host, and Envoy has no timeout for that. So the idle timeout
// ends streams without a route, and each route disables it for its own streams. Usually the virtual
// host is there already, because it is sent with the cluster that leads here.
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

// httpToApplication sends requests to the proxy's own application, if g allows them.
func httpToApplication(g guard) *listener.Filter {
	m := connectionManager("inbound", unreached)
	m.RouteSpecifier = singleRoute("inbound", &route.VirtualHost{Name: "app"}, &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_Cluster{Cluster: applicationCluster},
		Timeout:          duration(0),
		// The application may close an idle connection at the moment when it is reused.
		RetryPolicy: &route.RetryPolicy{RetryOn: "reset-before-request", NumRetries: uint32Value(2)},
	})
	// The header contains the client's identity from mutual TLS; it is removed from requests without
	// mutual TLS. As in Istio: istio/istio, pilot/pkg/networking/core/listener_inbound.go.
	m.ForwardClientCertDetails = hcm.HttpConnectionManager_APPEND_FORWARD
	m.SetCurrentClientCertDetails = &hcm.HttpConnectionManager_SetCurrentClientCertDetails{Subject: on(), Uri: true, Dns: true}
	m.HttpFilters = []*hcm.HttpFilter{toRouter(&router.Router{SuppressEnvoyHeaders: true})}
	g.requests(m)
	return httpManager(m)
}

// singleRoute returns a route configuration with one virtual host for all domains and one route for all
// requests.
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

// defaultRetries retries requests that no application has begun to read, on another endpoint if there
// is one. If there are two endpoints, a single selection chooses the failed one again half of the time;
// with up to ten selections, one retry in a thousand does.
//
// A failed connection ends one attempt of each request that waits for a connection to that endpoint,
// including later ones: without pauses, many requests would use up their attempts within milliseconds.
func defaultRetries() *route.RetryPolicy {
	p := retriesOf("connect-failure,refused-stream,reset-before-request,retriable-headers")
	p.RetryHostPredicate = []*route.RetryPolicy_RetryHostPredicate{{
		Name:       "envoy.retry_host_predicates.previous_hosts",
		ConfigType: &route.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: typed(&previous.PreviousHostsPredicate{})},
	}}
	p.HostSelectionRetryMaxAttempts = 10
	// The near endpoints have a separate priority, which is given up after an attempt there has failed:
	// see endpoints.
	p.RetryPriority = &route.RetryPolicy_RetryPriority{
		Name:       "envoy.retry_priorities.previous_priorities",
		ConfigType: &route.RetryPolicy_RetryPriority_TypedConfig{TypedConfig: typed(&priorities.PreviousPrioritiesConfig{UpdateFrequency: 1})},
	}
	return p
}

// retriesOf retries on these conditions, to any endpoint.
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

// onDemand returns the filter that subscribes to missing clusters and virtual hosts.
func onDemand(timeout time.Duration) *hcm.HttpFilter {
	return httpFilter("envoy.filters.http.on_demand", &demand.OnDemand{
		Odcds: &demand.OnDemandCds{Source: ads(0), Timeout: duration(timeout)},
	})
}

// outboundRouter returns a router that replaces the value of unreachedHeader in a response by the TLS
// version of the connection to the endpoint. Without TLS the header is removed.
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

// setState sets filter state that later filters of the same connection or stream can read.
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
