// Package clusters makes clusters and their endpoints: of services, of single addresses, of the application, and
// of Envoy's internal listeners. Without a policy it does not limit connections and requests, because an
// application without a proxy has no such limits either.
package clusters

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/mtls"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/observe"
	"outrider.dev/internal/core/xds/retry"
)

const (
	// ConnectTimeout is for clusters to which connections are not retried. It is Istio's value. A
	// shorter one would give up on an application whose accept queue is full: the kernel repeats a SYN
	// after 1, 3 and 7 s.
	ConnectTimeout = 10 * time.Second

	// tryTimeout is for clusters to which a connection is tried up to retry.Tries times, each time to
	// another endpoint if there is one. It allows for one lost SYN, which is repeated after 1 s.
	tryTimeout = 2 * time.Second
)

// A Builder builds clusters and endpoints. Its fields are properties of the mesh.
type Builder struct {
	TrustDomain     string
	Metrics         bool          // clusters and endpoints name the service and workload for which requests are counted
	FirstUseTimeout time.Duration // limits the wait of a proxy for the control plane
}

// newCluster returns the common part of all clusters. Its circuit breakers are set to the maximum, because
// connections without a proxy have no such limits.
func newCluster(name string) *cluster.Cluster {
	const all = math.MaxUint32
	return &cluster.Cluster{
		Name:           name,
		ConnectTimeout: durationpb.New(ConnectTimeout),
		CircuitBreakers: &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{{
			MaxConnections: wrapperspb.UInt32(all), MaxPendingRequests: wrapperspb.UInt32(all), MaxRequests: wrapperspb.UInt32(all), MaxRetries: wrapperspb.UInt32(all),
		}}},
		// There is no idle timeout for TCP, but keepalive ensures that the other end is reachable.
		UpstreamConnectionOptions: &cluster.UpstreamConnectionOptions{
			TcpKeepalive: &core.TcpKeepalive{KeepaliveTime: wrapperspb.UInt32(300)},
		},
	}
}

// Original returns a cluster that sends a connection or request to its original destination. The agent's
// bootstrap has a cluster with this name, which Envoy prefers; this one is for Envoys with another bootstrap.
func Original() *cluster.Cluster {
	c := newCluster(names.Passthrough)
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_ORIGINAL_DST}
	c.ConnectTimeout = durationpb.New(contract.DirectConnectTimeout)
	c.LbPolicy = cluster.Cluster_CLUSTER_PROVIDED
	c.TypedExtensionProtocolOptions = packed(httpOptions(mesh.HTTP))
	return c
}

// applicationIdle is the time after which the proxy closes an idle connection for requests to its application. It is
// shorter than the timeouts of servers (gunicorn: 2 s, Node.js and Apache: 5 s), so that no server closes a connection
// at the moment when a request is sent on it. A new connection within the machine takes some 0.1 ms.
const applicationIdle = time.Second

// Application returns a cluster that sends a connection to the proxy's own application, from an address that is
// excluded from capture: from any other address, the connection would be captured as outbound.
func Application() *cluster.Cluster {
	c := Original()
	c.Name, c.ConnectTimeout = names.Application, durationpb.New(ConnectTimeout)
	options := httpOptions(mesh.HTTP)
	options.CommonHttpProtocolOptions = &core.HttpProtocolOptions{IdleTimeout: durationpb.New(applicationIdle)}
	c.TypedExtensionProtocolOptions = packed(options)
	c.UpstreamBindConfig = &core.BindConfig{
		SourceAddress:        &core.SocketAddress{Address: "127.0.0.6", PortSpecifier: &core.SocketAddress_PortValue{}},
		ExtraSourceAddresses: []*core.ExtraSourceAddress{{Address: &core.SocketAddress{Address: "::6", PortSpecifier: &core.SocketAddress_PortValue{}}}},
	}
	return c
}

// httpOptions selects HTTP/2 for a port that declares it, and otherwise the client's protocol.
func httpOptions(p mesh.Protocol) *upstream.HttpProtocolOptions {
	options := &upstream.HttpProtocolOptions{}
	if p == mesh.HTTP2 || p == mesh.GRPC {
		options.UpstreamProtocolOptions = &upstream.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstream.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstream.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &core.Http2ProtocolOptions{},
				},
			},
		}
	} else {
		options.UpstreamProtocolOptions = &upstream.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &upstream.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions:  &core.Http1ProtocolOptions{},
				Http2ProtocolOptions: &core.Http2ProtocolOptions{},
			},
		}
	}
	return options
}

func packed(o *upstream.HttpProtocolOptions) map[string]*anypb.Any {
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": message.Typed(o)}
}

// Service returns a cluster for a service's port, for requests or for bytes.
func (b Builder) Service(name string, t names.Target, requests bool, sh features.Features) *cluster.Cluster {
	s, p := t.Service, t.Port
	c := newCluster(name)
	c.ConnectTimeout = durationpb.New(tryTimeout)
	c.AltStatName = names.Service(s, p.Number, names.Primary)
	limit(c, t.Policy())
	if b.Metrics {
		observe.DescribeService(c, s)
	}
	if requests {
		options := httpOptions(p.Protocol)
		limitRequests(options, t.Policy().Limits)
		c.TypedExtensionProtocolOptions = packed(options)
	}
	if s.External != "" {
		return externalCluster(c, s.External, p.Number)
	}
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_EDS}
	c.EdsClusterConfig = &cluster.Cluster_EdsClusterConfig{
		ServiceName: t.Name(),
		EdsConfig:   message.ADS(sh.EndpointsTimeout(b.FirstUseTimeout)),
	}
	if sh.GRPC {
		c.LbPolicy = cluster.Cluster_ROUND_ROBIN // C-core accepts only this one and RING_HASH
		return c
	}
	c.LbPolicy = cluster.Cluster_LEAST_REQUEST
	c.OutlierDetection = outlierDetection()
	detectOutliers(c, t.Policy().Outliers)
	ids := map[string]bool{}
	for _, e := range s.Endpoints {
		if e.PortName == p.Name && mtls.Mutual(e.Workload, e.Port) {
			ids[mtls.Identity(b.TrustDomain, e.Workload)] = true
		}
	}
	c.TransportSocketMatches = transportMatches(sh, names.Server(s, p.Number), slices.Sorted(maps.Keys(ids)))
	if requests && sh.Secrets.Configured() && answering(s, p) {
		retry.WhenEnded(c)
	}
	return c
}

// answering reports whether there are endpoints at a port, and each has a proxy that knows the port's requests. If the
// application ends a connection, such a proxy says so in an answer: see [retry.UnansweredHeader].
func answering(s *mesh.Service, p *mesh.Port) bool {
	some := false
	for _, e := range s.Endpoints {
		if e.PortName != p.Name {
			continue
		}
		some = true
		if !mtls.Mutual(e.Workload, e.Port) {
			return false
		}
		if at, _ := e.Workload.Port(e.Port); !at.Protocol.IsHTTP() {
			return false
		}
	}
	return some
}

// outlierDetection ejects an endpoint after three failed connections in a row, for 10 s at first and
// for at most a minute. The application's answers have no effect, good or bad. At most half of the
// endpoints are ejected, and never the only one, because then the proxy's own network is the more
// likely cause.
//
// A request that times out also counts as a failed connection, but each request that gets a connection resets the
// count. In a test with 240 requests to an application whose every fifth answer was late, a limit of one ejected
// 50 endpoints, and a limit of three ejected one.
func outlierDetection() *cluster.OutlierDetection {
	const never, always = 0, 100
	return &cluster.OutlierDetection{
		SplitExternalLocalOriginErrors:         true,
		ConsecutiveLocalOriginFailure:          wrapperspb.UInt32(3),
		EnforcingConsecutiveLocalOriginFailure: wrapperspb.UInt32(always),
		EnforcingConsecutive_5Xx:               wrapperspb.UInt32(never),
		EnforcingConsecutiveGatewayFailure:     wrapperspb.UInt32(never),
		EnforcingSuccessRate:                   wrapperspb.UInt32(never),
		EnforcingLocalOriginSuccessRate:        wrapperspb.UInt32(never),
		EnforcingFailurePercentage:             wrapperspb.UInt32(never),
		EnforcingFailurePercentageLocalOrigin:  wrapperspb.UInt32(never),
		Interval:                               durationpb.New(2 * time.Second), // between checks that return ejected endpoints to use; with 2,000 clusters, an interval of 1 s costs 5 ms of CPU a second, 2 s costs none
		BaseEjectionTime:                       durationpb.New(10 * time.Second),
		MaxEjectionTime:                        durationpb.New(time.Minute),
		MaxEjectionTimeJitter:                  durationpb.New(time.Second),
		MaxEjectionPercent:                     wrapperspb.UInt32(50),
	}
}

// externalCluster makes c a cluster for an ExternalName. It is active before the name is resolved: while a
// cluster warms, Envoy subscribes to no other cluster, so a resolver that does not respond would block every
// first use, and every start with the cluster prewarmed.
func externalCluster(c *cluster.Cluster, host string, port uint16) *cluster.Cluster {
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_LOGICAL_DNS}
	c.WaitForWarmOnInit = wrapperspb.Bool(false)
	c.DnsLookupFamily = cluster.Cluster_V4_PREFERRED
	c.LoadAssignment = singleEndpoint(c.Name, host, port, "")
	return c
}

// Direct returns the cluster for one address, which belongs to a workload or is unknown. It uses mutual TLS if
// id, the workload's identity, is not empty. Its type is not ORIGINAL_DST, because that would give its endpoints
// host names, see httpRouteByAddress in package listeners.
//
// It behaves like the network without a proxy: a refused or unreachable connection is not retried, and
// the application's timeout applies, unless the address is in a range of services.
func Direct(a names.Address, p mesh.Protocol, id string, sh features.Features, retried bool) *cluster.Cluster {
	name := a.String()
	c := newCluster(name)
	c.ConnectTimeout = durationpb.New(tryTimeout)
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
	options := httpOptions(p)
	if !retried {
		c.ConnectTimeout = durationpb.New(contract.DirectConnectTimeout)
		options.RetryPolicy = retry.On("refused-stream,retriable-headers") // replaces the retry policy of the route
	}
	if a.HTTP() {
		c.TypedExtensionProtocolOptions = packed(options)
	}
	c.LoadAssignment = singleEndpoint(name, a.To.Addr().String(), a.To.Port(), id)
	c.AltStatName = names.Passthrough
	if id != "" {
		c.AltStatName = strings.ReplaceAll(name, ":", "_") // colons separate the parts of a statistic's name
		c.TransportSocketMatches = transportMatches(sh, "", []string{id})
	}
	return c
}

// Workload does the same as Direct for the address of a workload, whose endpoint it also describes. id is empty
// if mutual TLS is not used.
func (b Builder) Workload(a names.Address, w *mesh.Workload, p mesh.Protocol, id string, sh features.Features, retried bool) *cluster.Cluster {
	c := Direct(a, p, id, sh, retried)
	b.describe(c.LoadAssignment.Endpoints[0].LbEndpoints[0], w)
	return c
}

// Internal returns a cluster that leads to the internal listener, with the authority of a target's
// virtual host.
func Internal(name string, t names.Target) *cluster.Cluster {
	c, e := toInternalListener(name, names.Internal, t.RoutedHost())
	c.AltStatName = names.Internal + "|" + t.RoutedHost()
	c.TypedExtensionProtocolOptions = packed(httpOptions(mesh.HTTP))
	e.GetEndpoint().Hostname = t.RoutedHost()
	return c
}

// toInternalListener returns a cluster that leads to an internal listener, and its endpoint.
func toInternalListener(name, listener, id string) (*cluster.Cluster, *endpoint.LbEndpoint) {
	c := newCluster(name)
	c.UpstreamConnectionOptions = nil // there is no socket
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
	e := &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
		Address: &core.Address{Address: &core.Address_EnvoyInternalAddress{EnvoyInternalAddress: &core.EnvoyInternalAddress{
			AddressNameSpecifier: &core.EnvoyInternalAddress_ServerListenerName{ServerListenerName: listener},
			EndpointId:           id,
		}}},
	}}}
	c.LoadAssignment = &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{
		LbEndpoints: []*endpoint.LbEndpoint{e},
	}}}
	return c, e
}

// identityKey is the key of an endpoint's metadata that selects its transport socket.
const identityKey = "identity"

// transportMatches returns the transport sockets of a cluster: endpoints with an identity are called by
// mutual TLS that requires exactly this identity, all others in plain text.
func transportMatches(sh features.Features, sni string, ids []string) []*cluster.Cluster_TransportSocketMatch {
	if !sh.Secrets.Configured() {
		return nil
	}
	var out []*cluster.Cluster_TransportSocketMatch
	for _, id := range ids {
		out = append(out, &cluster.Cluster_TransportSocketMatch{
			Name: id, Match: identityOf(id), TransportSocket: mtls.Upstream(sh.Secrets, sh.Groups, sni, id),
		})
	}
	return out
}

func identityOf(id string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{identityKey: structpb.NewStringValue(id)}}
}
