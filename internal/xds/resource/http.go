package resource

import (
	"time"

	mutation "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	values "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	demand "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	filterstate "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_filter_state/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	early "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	previous "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/mesh"
)

const (
	// toHeader has the name of the cluster that a request goes to. It is set before the
	// route is chosen, whatever the caller wrote there, and taken away behind it.
	toHeader = "x-outrider-to"

	// writtenHost has the authority that the caller wrote, while the request is inside:
	// Envoy's header has it on the way there, and must not be seen by the application.
	writtenHost = "outrider.host"
	hostHeader  = "x-envoy-original-host"

	// earlyPatience is that with what came before the proxy did: thousands may come in the
	// same moment, and the control plane has just been heard. On a machine that has other work
	// 2,000 took 13 s.
	earlyPatience = 30 * time.Second
)

// connections is the part of HTTP that is the same everywhere: what passes is changed
// as little as Envoy can. What Envoy answers itself says which of these causes it has.
func connections(name string, causes ...cause) *hcm.HttpConnectionManager {
	return &hcm.HttpConnectionManager{
		StatPrefix:                 name,
		StreamIdleTimeout:          lasting(0),
		ServerHeaderTransformation: hcm.HttpConnectionManager_PASS_THROUGH,
		HttpProtocolOptions:        &core.Http1ProtocolOptions{AcceptHttp_10: true, DefaultHostForHttp_10: "localhost"},
		CommonHttpProtocolOptions:  &core.HttpProtocolOptions{MaxHeadersCount: number(1000)},
		MaxRequestHeadersKb:        number(128),
		UpgradeConfigs:             []*hcm.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		LocalReplyConfig:           replies(name, causes),
	}
}

// byAddress sends requests to the cluster of their address. There is one virtual host
// and one route, and nothing in them goes with the mesh.
func byAddress(wait time.Duration) *listener.Filter {
	m := connections("outbound", unknown, empty, refused)
	m.EarlyHeaderMutationExtensions = setHeader(toHeader, byHTTP+"%DOWNSTREAM_LOCAL_ADDRESS%")
	m.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: &route.RouteConfiguration{
		Name:             "by-address",
		ValidateClusters: no(),
		VirtualHosts: []*route.VirtualHost{{
			Name: "any", Domains: []string{"*"},
			RequestHeadersToRemove: []string{toHeader},
			Routes: []*route.Route{{
				Match: anything(),
				Action: &route.Route_Route{Route: &route.RouteAction{
					ClusterSpecifier: &route.RouteAction_ClusterHeader{ClusterHeader: toHeader},
					// Only the listener inside is an endpoint with a host name, see inside.
					HostRewriteSpecifier: &route.RouteAction_AutoHostRewrite{AutoHostRewrite: yes()},
					Timeout:              lasting(0),
					RetryPolicy:          unsent(),
				}},
			}},
		}},
	}}
	m.HttpFilters = []*hcm.HttpFilter{onDemand(wait), toRouter(&router.Router{})}
	return network("envoy.filters.network.http_connection_manager", m)
}

// byService sends the requests that come to the listener inside by the virtual host of
// their service. It is the only place where a request waits for a virtual host, which
// Envoy does without a bound of its own: so a stream without a route is idle for too long
// after the patience, and each route says for itself that its streams may be idle. Mostly
// the virtual host is there before: it comes with the cluster that the request came by.
func (b *builder) byService() *listener.Filter {
	m := connections(routed, unknown, waited, noRoute, late, empty, refused)
	m.StreamIdleTimeout = lasting(b.patience)
	m.RouteSpecifier = &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: routed, ConfigSource: ads(0)}}
	m.HttpFilters = []*hcm.HttpFilter{
		httpFilter("envoy.filters.http.set_filter_state", &filterstate.Config{
			OnRequestHeaders: []*values.FilterStateValue{setState(writtenHost, "%REQ("+hostHeader+")%")},
		}),
		onDemand(b.patience), toRouter(&router.Router{SuppressEnvoyHeaders: true}),
	}
	return network("envoy.filters.network.http_connection_manager", m)
}

// toApplication sends requests to the application behind the proxy.
func toApplication() *listener.Filter {
	m := connections("inbound", refused)
	m.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: &route.RouteConfiguration{
		Name:             "inbound",
		ValidateClusters: no(),
		VirtualHosts: []*route.VirtualHost{{
			Name: "app", Domains: []string{"*"},
			Routes: []*route.Route{{
				Match: anything(),
				Action: &route.Route_Route{Route: &route.RouteAction{
					ClusterSpecifier: &route.RouteAction_Cluster{Cluster: toApp},
					Timeout:          lasting(0),
					// The application closed an idle connection as it was chosen.
					RetryPolicy: &route.RetryPolicy{RetryOn: "reset-before-request", NumRetries: number(2)},
				}},
			}},
		}},
	}}
	// Who called, by mutual TLS; what a caller without it writes there is taken away. As
	// Istio has it: istio/istio, pilot/pkg/networking/core/listener_inbound.go.
	m.ForwardClientCertDetails = hcm.HttpConnectionManager_APPEND_FORWARD
	m.SetCurrentClientCertDetails = &hcm.HttpConnectionManager_SetCurrentClientCertDetails{Subject: yes(), Uri: true, Dns: true}
	m.HttpFilters = []*hcm.HttpFilter{toRouter(&router.Router{SuppressEnvoyHeaders: true})}
	return network("envoy.filters.network.http_connection_manager", m)
}

func anything() *route.RouteMatch {
	return &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}}
}

// unsent retries what no server has begun to read, on another endpoint if there is one.
func unsent() *route.RetryPolicy {
	return &route.RetryPolicy{
		RetryOn:    "connect-failure,refused-stream,reset-before-request",
		NumRetries: number(2),
		RetryHostPredicate: []*route.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &route.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: typed(&previous.PreviousHostsPredicate{})},
		}},
		HostSelectionRetryMaxAttempts: 3,
	}
}

// onDemand asks for clusters and virtual hosts that are not there.
func onDemand(wait time.Duration) *hcm.HttpFilter {
	return httpFilter("envoy.filters.http.on_demand", &demand.OnDemand{
		Odcds: &demand.OnDemandCds{Source: ads(0), Timeout: lasting(wait)},
	})
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

// setState keeps a text for what comes later on the same connection or stream.
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
	if key == writtenHost {
		out.FactoryKey = "envoy.string"
	}
	return out
}

func header(name, value string, how core.HeaderValueOption_HeaderAppendAction) *core.HeaderValueOption {
	return &core.HeaderValueOption{Header: &core.HeaderValue{Key: name, Value: value}, AppendAction: how}
}

// requests says whether a port's bytes are read as HTTP when they look like it.
func requests(p mesh.Protocol) bool { return p.IsHTTP() || p == mesh.Unknown }
