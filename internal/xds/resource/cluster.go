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
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/mesh"
)

// connectTimeout is Istio's. A shorter one would give up on a pod whose early connections
// are parked: their next try is the kernel's, after 1, 3 and 7 s.
const connectTimeout = 10 * time.Second

// endpointsWait bounds how long a cluster waits for its endpoints: while one waits, Envoy
// asks for no other. Who is told everything asks for nothing, and needs longer than that to
// make the clusters: it waits for ever, as with Istio.
func (b *builder) endpointsWait(sh shape) time.Duration {
	if sh.full {
		return 0
	}
	return b.patience
}

// base is what all clusters have in common: nothing between the application and the
// service that it calls which was not there without a proxy, so no limits, and no
// endpoint put aside for its errors.
func base(name string) *cluster.Cluster {
	const all = math.MaxUint32
	return &cluster.Cluster{
		Name:           name,
		ConnectTimeout: lasting(connectTimeout),
		CircuitBreakers: &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{{
			MaxConnections: number(all), MaxPendingRequests: number(all), MaxRequests: number(all), MaxRetries: number(all),
		}}},
		// The one timeout that there is for bytes: none is idle for too long, but the other
		// end must be there.
		UpstreamConnectionOptions: &cluster.UpstreamConnectionOptions{
			TcpKeepalive: &core.TcpKeepalive{KeepaliveTime: number(300)},
		},
	}
}

// application sends a connection to the proxy's own application, from an address that
// capture leaves alone (package capture): what comes from the proxy by any other goes
// out.
func application() *cluster.Cluster {
	c := base(toApp)
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_ORIGINAL_DST}
	c.LbPolicy = cluster.Cluster_CLUSTER_PROVIDED
	c.TypedExtensionProtocolOptions = protocol(mesh.HTTP)
	c.UpstreamBindConfig = &core.BindConfig{
		SourceAddress:        &core.SocketAddress{Address: "127.0.0.6", PortSpecifier: &core.SocketAddress_PortValue{}},
		ExtraSourceAddresses: []*core.ExtraSourceAddress{{Address: &core.SocketAddress{Address: "::6", PortSpecifier: &core.SocketAddress_PortValue{}}}},
	}
	return c
}

// protocol is how requests are spoken to a cluster. Where it is not declared to be
// HTTP/2 it is what the caller speaks.
func protocol(p mesh.Protocol) map[string]*anypb.Any {
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
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(options)}
}

// service is a cluster of a service's port, under a name; requests says whether it is
// spoken to in HTTP.
func (b *builder) service(name string, t target, requests bool, sh shape) *cluster.Cluster {
	s, p := t.service, t.port
	c := base(name)
	c.AltStatName = serviceName(s, p.Number, first)
	if requests {
		c.TypedExtensionProtocolOptions = protocol(p.Protocol)
	}
	if s.External != "" {
		return external(c, s.External, p.Number)
	}
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_EDS}
	c.EdsClusterConfig = &cluster.Cluster_EdsClusterConfig{
		ServiceName: t.name(),
		EdsConfig:   ads(b.endpointsWait(sh)),
	}
	c.LbPolicy = cluster.Cluster_LEAST_REQUEST
	ids := map[string]bool{}
	for _, e := range s.Endpoints {
		if e.PortName == p.Name && mutual(e.Workload, e.Port) {
			ids[identity(b.config.TrustDomain, e.Workload)] = true
		}
	}
	c.TransportSocketMatches = socketMatches(sh, serverName(s, p.Number), slices.Sorted(maps.Keys(ids)))
	return c
}

// external is a cluster of a name outside, as an ExternalName has it. It is there before the
// name is resolved: while a cluster warms Envoy asks for no other, and a resolver that does
// not answer would stop every first use, and every start of who used the name before.
func external(c *cluster.Cluster, host string, port uint16) *cluster.Cluster {
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_LOGICAL_DNS}
	c.WaitForWarmOnInit = no()
	c.DnsLookupFamily = cluster.Cluster_V4_PREFERRED
	c.LoadAssignment = single(c.Name, host, port, "")
	return c
}

// direct is a cluster of one address: of a workload, by mutual TLS if it has an identity,
// or of what nothing is known of. It is none of Envoy's kind ORIGINAL_DST, because that
// gives its endpoints host names, see byAddress.
func direct(a address, p mesh.Protocol, id string, sh shape) *cluster.Cluster {
	name := a.String()
	c := base(name)
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
	if a.http {
		c.TypedExtensionProtocolOptions = protocol(p)
	}
	c.LoadAssignment = single(name, a.to.Addr().String(), a.to.Port(), id)
	c.AltStatName = passthrough
	if id != "" {
		c.AltStatName = strings.ReplaceAll(name, ":", "_") // a colon ends a part of a statistic's name
		c.TransportSocketMatches = socketMatches(sh, "", []string{id})
	}
	return c
}

// inside is a cluster that leads to the listener inside, with the authority of the
// virtual host that it is to ask for.
func inside(name string, t target) *cluster.Cluster {
	c := base(name)
	c.UpstreamConnectionOptions = nil // no socket
	c.AltStatName = routed + "|" + t.routedHost()
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
	c.TypedExtensionProtocolOptions = protocol(mesh.HTTP)
	c.LoadAssignment = &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{
		LbEndpoints: []*endpoint.LbEndpoint{{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Hostname: t.routedHost(),
			Address: &core.Address{Address: &core.Address_EnvoyInternalAddress{EnvoyInternalAddress: &core.EnvoyInternalAddress{
				AddressNameSpecifier: &core.EnvoyInternalAddress_ServerListenerName{ServerListenerName: routed},
				EndpointId:           t.routedHost(),
			}}},
		}}}},
	}}}
	return c
}

// identityKey is an endpoint's metadata that chooses how it is called.
const identityKey = "identity"

// socketMatches are how the endpoints of a cluster are called: those with an identity by
// mutual TLS, with exactly that one, all others plainly.
func socketMatches(sh shape, sni string, ids []string) []*cluster.Cluster_TransportSocketMatch {
	if !sh.secrets.some() {
		return nil
	}
	var out []*cluster.Cluster_TransportSocketMatch
	for _, id := range ids {
		out = append(out, &cluster.Cluster_TransportSocketMatch{
			Name: id, Match: identityOf(id), TransportSocket: callTLS(sh.secrets, sni, id),
		})
	}
	return out
}

func identityOf(id string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{identityKey: structpb.NewStringValue(id)}}
}

// ads says that a resource comes by the stream that all come by. How long it is waited
// for; 0 is for ever.
func ads(wait time.Duration) *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
		InitialFetchTimeout:   lasting(wait),
	}
}

func socketAddress(host string, port uint16) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

func (s socket) address() *core.Address { return socketAddress(s.host.String(), s.port) }

var loopback = netip.MustParseAddr("127.0.0.1")
