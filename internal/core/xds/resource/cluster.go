package resource

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

const (
	// connectTimeout is for clusters to which connections are not retried. It is Istio's value. A
	// shorter one would give up on an application whose accept queue is full: the kernel repeats a SYN
	// after 1, 3 and 7 s.
	connectTimeout = 10 * time.Second

	// tryTimeout is for clusters to which a connection is tried up to connectTries times, each time to
	// another endpoint if there is one. It allows for one lost SYN, which is repeated after 1 s.
	tryTimeout = 2 * time.Second

	// connectTries is how often a connection or a request is tried. Envoy chooses each pause between
	// attempts at random, from zero to a bound; together they last 5.3 s on average, and more than 2.5
	// s in 999 of 1,000 requests. In that time a proxy or an application restarts, and a failing
	// endpoint is ejected. If there is only one endpoint and it does not answer, Envoy gives up after
	// 37 s; with Istio that takes half a minute, 3 attempts of 10 s.
	connectTries             = 16
	firstPause, longestPause = 25 * time.Millisecond, time.Second
)

// endpointsTimeout limits how long a cluster waits for its endpoints, because meanwhile Envoy
// subscribes to no other cluster.
func (b *builder) endpointsTimeout(sh features) time.Duration {
	if sh.relayed {
		return relayedEndpointsTimeout
	}
	return b.firstUseTimeout
}

// newCluster returns the common part of all clusters. It sets no limits, because there are none without
// a proxy.
func newCluster(name string) *cluster.Cluster {
	const all = math.MaxUint32
	return &cluster.Cluster{
		Name:           name,
		ConnectTimeout: duration(connectTimeout),
		CircuitBreakers: &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{{
			MaxConnections: uint32Value(all), MaxPendingRequests: uint32Value(all), MaxRequests: uint32Value(all), MaxRetries: uint32Value(all),
		}}},
		// There is no idle timeout for TCP, but keepalive ensures that the other end is reachable.
		UpstreamConnectionOptions: &cluster.UpstreamConnectionOptions{
			TcpKeepalive: &core.TcpKeepalive{KeepaliveTime: uint32Value(300)},
		},
	}
}

// originalCluster sends a connection or request to its original destination. The agent's bootstrap has
// a cluster with this name, which Envoy prefers; this one is for Envoys with another bootstrap.
func originalCluster() *cluster.Cluster {
	c := newCluster(passthroughCluster)
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_ORIGINAL_DST}
	c.ConnectTimeout = duration(contract.DirectConnectTimeout)
	c.LbPolicy = cluster.Cluster_CLUSTER_PROVIDED
	c.TypedExtensionProtocolOptions = protocolOptions(mesh.HTTP, nil)
	return c
}

// appCluster sends a connection to the proxy's own application, from an address that is excluded from
// capture: from any other address, the connection would be captured as outbound.
func appCluster() *cluster.Cluster {
	c := originalCluster()
	c.Name, c.ConnectTimeout = applicationCluster, duration(connectTimeout)
	c.UpstreamBindConfig = &core.BindConfig{
		SourceAddress:        &core.SocketAddress{Address: "127.0.0.6", PortSpecifier: &core.SocketAddress_PortValue{}},
		ExtraSourceAddresses: []*core.ExtraSourceAddress{{Address: &core.SocketAddress{Address: "::6", PortSpecifier: &core.SocketAddress_PortValue{}}}},
	}
	return c
}

// protocolOptions selects HTTP/2 for a port that declares it, and otherwise the client's protocol. If
// retries is not nil, it replaces the retries in routes.
func protocolOptions(p mesh.Protocol, retries *route.RetryPolicy) map[string]*anypb.Any {
	return packed(httpOptions(p, retries))
}

func httpOptions(p mesh.Protocol, retries *route.RetryPolicy) *upstream.HttpProtocolOptions {
	options := &upstream.HttpProtocolOptions{RetryPolicy: retries}
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
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(o)}
}

// serviceEDS returns a cluster for a service's port, for requests or for bytes.
func (b *builder) serviceEDS(name string, t target, requests bool, sh features) *cluster.Cluster {
	s, p := t.service, t.port
	c := newCluster(name)
	c.ConnectTimeout = duration(tryTimeout)
	c.AltStatName = serviceName(s, p.Number, primary)
	limit(c, t.policyOf())
	b.describeService(c, s)
	if requests {
		options := httpOptions(p.Protocol, nil)
		limitRequests(options, t.policyOf().Limits)
		c.TypedExtensionProtocolOptions = packed(options)
	}
	if s.External != "" {
		return externalCluster(c, s.External, p.Number)
	}
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_EDS}
	c.EdsClusterConfig = &cluster.Cluster_EdsClusterConfig{
		ServiceName: t.name(),
		EdsConfig:   ads(b.endpointsTimeout(sh)),
	}
	if sh.grpc {
		c.LbPolicy = cluster.Cluster_ROUND_ROBIN // C-core accepts only this one and RING_HASH
		return c
	}
	c.LbPolicy = cluster.Cluster_LEAST_REQUEST
	c.OutlierDetection = outlierDetection()
	detectOutliers(c, t.policyOf().Outliers)
	ids := map[string]bool{}
	for _, e := range s.Endpoints {
		if e.PortName == p.Name && mutual(e.Workload, e.Port) {
			ids[identity(b.config.TrustDomain, e.Workload)] = true
		}
	}
	c.TransportSocketMatches = transportMatches(sh, serverName(s, p.Number), slices.Sorted(maps.Keys(ids)))
	return c
}

// outlierDetection ejects an endpoint after three failed connections in a row, for 10 s at first and
// for at most a minute. The application's answers have no effect, good or bad. At most half of the
// endpoints are ejected, and never the only one, because then the proxy's own network is the more
// likely cause.
//
// A request that times out also counts as a failed connection, but each request that gets a connection
// resets the count. With a limit of one, 50 endpoints were ejected in 240 requests to an application of
// which every fifth answer was late; with three, one was.
func outlierDetection() *cluster.OutlierDetection {
	const never, always = 0, 100
	return &cluster.OutlierDetection{
		SplitExternalLocalOriginErrors:         true,
		ConsecutiveLocalOriginFailure:          uint32Value(3),
		EnforcingConsecutiveLocalOriginFailure: uint32Value(always),
		EnforcingConsecutive_5Xx:               uint32Value(never),
		EnforcingConsecutiveGatewayFailure:     uint32Value(never),
		EnforcingSuccessRate:                   uint32Value(never),
		EnforcingLocalOriginSuccessRate:        uint32Value(never),
		EnforcingFailurePercentage:             uint32Value(never),
		EnforcingFailurePercentageLocalOrigin:  uint32Value(never),
		Interval:                               duration(2 * time.Second), // of returning endpoints to use; with 2,000 clusters 1 s costs 5 ms of CPU a second, 2 s none
		BaseEjectionTime:                       duration(10 * time.Second),
		MaxEjectionTime:                        duration(time.Minute),
		MaxEjectionTimeJitter:                  duration(time.Second),
		MaxEjectionPercent:                     uint32Value(50),
	}
}

// externalCluster is for an ExternalName. It is active before the name is resolved: while a cluster
// warms, Envoy subscribes to no other, so a resolver that does not respond would block every first use,
// and every start with the cluster prewarmed.
func externalCluster(c *cluster.Cluster, host string, port uint16) *cluster.Cluster {
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_LOGICAL_DNS}
	c.WaitForWarmOnInit = off()
	c.DnsLookupFamily = cluster.Cluster_V4_PREFERRED
	c.LoadAssignment = singleEndpoint(c.Name, host, port, "")
	return c
}

// directCluster is for one address: of a workload, with mutual TLS if it has an identity, or an unknown
// one. Its type is not ORIGINAL_DST, because that would give its endpoints host names, see
// httpRouteByAddress.
//
// It behaves like the network without a proxy: a refused or unreachable connection is not retried, and
// the application's timeout applies, unless the address is in a range of services.
func directCluster(a address, p mesh.Protocol, id string, sh features, retried bool) *cluster.Cluster {
	name := a.String()
	c := newCluster(name)
	c.ConnectTimeout = duration(tryTimeout)
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
	var retries *route.RetryPolicy // nil: the route's retries
	if !retried {
		c.ConnectTimeout = duration(contract.DirectConnectTimeout)
		retries = retriesOf("refused-stream,retriable-headers")
	}
	if a.http() {
		c.TypedExtensionProtocolOptions = protocolOptions(p, retries)
	}
	c.LoadAssignment = singleEndpoint(name, a.to.Addr().String(), a.to.Port(), id)
	c.AltStatName = passthroughCluster
	if id != "" {
		c.AltStatName = strings.ReplaceAll(name, ":", "_") // colons separate the parts of a statistic's name
		c.TransportSocketMatches = transportMatches(sh, "", []string{id})
	}
	return c
}

// internalTo returns a cluster that leads to the internal listener, with the authority of a target's
// virtual host.
func internalTo(name string, t target) *cluster.Cluster {
	c, e := toInternalListener(name, internalName, t.routedHost())
	c.AltStatName = internalName + "|" + t.routedHost()
	c.TypedExtensionProtocolOptions = protocolOptions(mesh.HTTP, nil)
	e.GetEndpoint().Hostname = t.routedHost()
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
func transportMatches(sh features, sni string, ids []string) []*cluster.Cluster_TransportSocketMatch {
	if !sh.secrets.configured() {
		return nil
	}
	var out []*cluster.Cluster_TransportSocketMatch
	for _, id := range ids {
		out = append(out, &cluster.Cluster_TransportSocketMatch{
			Name: id, Match: identityOf(id), TransportSocket: upstreamTLS(sh.secrets, sni, id),
		})
	}
	return out
}

func identityOf(id string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{identityKey: structpb.NewStringValue(id)}}
}

// ads makes the proxy's single ADS stream the source of a resource. A timeout of 0 means none.
func ads(timeout time.Duration) *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
		InitialFetchTimeout:   duration(timeout),
	}
}

func socketAddress(host string, port uint16) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

func (s socket) address() *core.Address { return socketAddress(s.host.String(), s.port) }

var loopback = netip.MustParseAddr("127.0.0.1")
