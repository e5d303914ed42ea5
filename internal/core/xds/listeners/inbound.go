package listeners

import (
	"net/netip"
	"strconv"
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspector "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tcp "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/mtls"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/observe"
	"outrider.dev/internal/core/xds/rbac"
)

// An InboundPort describes which connections to a port of the application are accepted.
type InboundPort struct {
	port      uint16 // 0: all other ports
	http      bool
	mutualTLS bool
	plaintext bool
	appTLS    bool // plain text may be TLS of the application, which is detected
}

// InboundPorts returns the ports of a workload; the last entry is for all other ports. If the workload
// is unknown (yet), it accepts only mutual TLS, because a policy may require that.
func InboundPorts(w *mesh.Workload, f features.Features) []InboundPort {
	if w == nil {
		return []InboundPort{{mutualTLS: f.Secrets.Configured()}}
	}
	var out []InboundPort
	for _, p := range w.Ports {
		d := inboundPortOf(p, f)
		if p.Protocol == mesh.ServerFirst && p.TLS == mesh.Permissive {
			d = InboundPort{port: p.Number, plaintext: true} // without an inspector, which would wait for the client: see mtls.Mutual
		}
		out = append(out, d)
	}
	return append(out, inboundPortOf(mesh.AppPort{Protocol: mesh.TCP, TLS: w.TLS}, f))
}

func inboundPortOf(p mesh.AppPort, f features.Features) InboundPort {
	d := InboundPort{port: p.Number, http: p.Protocol.IsHTTP()}
	d.mutualTLS = p.TLS != mesh.Disable && f.Secrets.Configured()
	d.plaintext = p.TLS != mesh.Strict
	d.appTLS = d.plaintext && (d.mutualTLS || d.http)
	return d
}

// handshakeTimeout limits a client's TLS handshake. It allows for several lost segments. A proxy that
// is a client gives up earlier, after two seconds (tryTimeout in package clusters), and its handshake
// ends with it.
const handshakeTimeout = 30 * time.Second

// helloTimeout limits the wait for a client's first bytes, which may be a ClientHello; after it the
// connection counts as plain text. A lost segment is repeated after some 0.2 s, and after 0.6 s if it
// is lost twice. If a server speaks first on a port that does not declare so, its plain-text clients
// wait this long.
const helloTimeout = time.Second

// Inbound returns a listener for connections to the application: for captured connections, or for those
// that began before the proxy started. Its listener filters depend on the ports as little as possible,
// because a change of them closes the connections to all ports.
func (b Builder) Inbound(name string, f features.Features, ports []InboundPort, g rbac.Guard) *listener.Listener {
	var l *listener.Listener
	var destination *listener.ListenerFilter
	if name == names.EarlyInbound {
		l = deferAccept(listen(name, netip.AddrPortFrom(loopback, contract.RelayInbound)))
		destination = proxyProtocol()
	} else {
		l = listen(name, f.Wildcards(contract.InboundPort)...)
		destination = originalDestination()
		if f.Transparent {
			l.Transparent = wrapperspb.Bool(true)
		}
	}
	inspect := message.ListenerFilter("envoy.filters.listener.tls_inspector", &inspector.TlsInspector{})
	inspect.FilterDisabled = notInspected(ports)
	detect(l, helloTimeout, destination, inspect)
	l.TrafficDirection = core.TrafficDirection_INBOUND
	if f.Secrets.Configured() && f.Relayed { // the agent exposes the count
		l.AccessLog = []*accesslog.AccessLog{observe.OldTLS()}
	}
	l.FilterChains = rejectOwnPorts()
	for _, p := range ports {
		l.FilterChains = append(l.FilterChains, b.chains(f, p, g)...)
	}
	return l
}

// toApplication forwards bytes to the proxy's own application.
func toApplication() *tcp.TcpProxy {
	proxy := toCluster(names.Application)
	proxy.StatPrefix = "inbound"
	return proxy
}

// notInspected matches the ports on which the first bytes of a connection make no difference. Ports that
// accept only mutual TLS are not matched, although the first bytes make no difference there either: the
// listener would then depend on the set of these ports.
func notInspected(ports []InboundPort) *predicate {
	var excluded, inspected []*predicate
	for _, d := range ports {
		switch inspect := d.mutualTLS || d.appTLS; {
		case d.port == 0 && !inspect:
			return not(anyOf(inspected)) // all ports except the inspected ones
		case inspect:
			inspected = append(inspected, onPort(d.port))
		default:
			excluded = append(excluded, onPort(d.port))
		}
	}
	return anyOf(excluded)
}

type predicate = listener.ListenerFilterChainMatchPredicate

func onPort(port uint16) *predicate {
	return &predicate{Rule: &listener.ListenerFilterChainMatchPredicate_DestinationPortRange{
		DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port) + 1},
	}}
}

// anyOf returns nil for an empty list. The API requires at least two rules for an "or".
func anyOf(rules []*predicate) *predicate {
	switch len(rules) {
	case 0:
		return nil
	case 1:
		return rules[0]
	}
	return &predicate{Rule: &listener.ListenerFilterChainMatchPredicate_OrMatch{
		OrMatch: &listener.ListenerFilterChainMatchPredicate_MatchSet{Rules: rules},
	}}
}

func not(p *predicate) *predicate {
	if p == nil {
		return &predicate{Rule: &listener.ListenerFilterChainMatchPredicate_AnyMatch{AnyMatch: true}}
	}
	return &predicate{Rule: &listener.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: p}}
}

// chains returns the filter chains for a port. Envoy selects the most specific match and does not fall
// back to a less specific one, so if the mesh's TLS is matched by its ALPN, other TLS needs a chain
// too.
func (b Builder) chains(sh features.Features, d InboundPort, g rbac.Guard) []*listener.FilterChain {
	bytes := append(g.Bytes(), tcpProxy(toApplication()))
	app, authenticated := bytes, bytes
	if d.http {
		app = []*listener.Filter{httpToApplication(g)}
		authenticated = app
	} else {
		// The application gets no connection from an unauthenticated client.
		after := toApplication()
		after.UpstreamConnectMode, after.MaxEarlyDataBytes = tcp.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE, wrapperspb.UInt32(0)
		authenticated = append(g.Bytes(), tcpProxy(after))
	}
	name := "app"
	match := func() *listener.FilterChainMatch { return &listener.FilterChainMatch{} }
	if d.port != 0 {
		name = "app-" + strconv.Itoa(int(d.port))
		match = func() *listener.FilterChainMatch {
			return &listener.FilterChainMatch{DestinationPort: wrapperspb.UInt32(uint32(d.port))}
		}
	}
	var out []*listener.FilterChain
	add := func(suffix string, m *listener.FilterChainMatch, filters []*listener.Filter, s *core.TransportSocket) {
		out = append(out, &listener.FilterChain{Name: name + suffix, FilterChainMatch: m, Filters: filters, TransportSocket: s})
	}
	if d.mutualTLS {
		m := match()
		if d.plaintext { // otherwise only mutual TLS is accepted, however late its first bytes arrive
			m.TransportProtocol, m.ApplicationProtocols = "tls", []string{mtls.ALPN}
		}
		add("-mesh", m, authenticated, mtls.Downstream(sh.Secrets, sh.Groups, b.MinTLS, b.TrustDomain))
		out[0].TransportSocketConnectTimeout = durationpb.New(handshakeTimeout)
	}
	if d.appTLS {
		m := match()
		m.TransportProtocol = "tls"
		add("-tls", m, bytes, nil)
	}
	if d.plaintext {
		add("", match(), app, nil)
	}
	return out
}
