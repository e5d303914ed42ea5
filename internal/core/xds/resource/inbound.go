package resource

import (
	"fmt"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspector "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tcp "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

// An inboundPort says how connections to a port of the application are accepted.
type inboundPort struct {
	port      uint16 // 0: all other ports
	http      bool
	mutualTLS bool
	plaintext bool
	appTLS    bool // plain text may be TLS of the application, which is detected
}

// inboundPorts returns the ports of a workload; the last entry is for all other ports. If the workload
// is unknown (yet), it accepts only mutual TLS, because a policy may require that.
func inboundPorts(w *mesh.Workload, f features) []inboundPort {
	if w == nil {
		return []inboundPort{{mutualTLS: f.secrets.configured()}}
	}
	var out []inboundPort
	for _, p := range w.Ports {
		d := inboundPortOf(p, f)
		if p.Protocol == mesh.ServerFirst && p.TLS == mesh.Permissive {
			d = inboundPort{port: p.Number, plaintext: true} // without an inspector, which would wait for the client: see mutual
		}
		out = append(out, d)
	}
	return append(out, inboundPortOf(mesh.AppPort{Protocol: mesh.TCP, TLS: w.TLS}, f))
}

func inboundPortOf(p mesh.AppPort, f features) inboundPort {
	d := inboundPort{port: p.Number, http: p.Protocol.IsHTTP()}
	d.mutualTLS = p.TLS != mesh.Disable && f.secrets.configured()
	d.plaintext = p.TLS != mesh.Strict
	d.appTLS = d.plaintext && (d.mutualTLS || d.http)
	return d
}

// handshakeTimeout limits a client's TLS handshake. It allows for several lost segments. A proxy that
// is a client gives up earlier, after tryTimeout, and its handshake ends with it.
const handshakeTimeout = 30 * time.Second

// helloTimeout limits the wait for a client's first bytes, which may be a ClientHello; after it the
// connection counts as plain text. A lost segment is repeated after some 0.2 s, and after 0.6 s if it
// is lost twice. If a server speaks first on a port that does not declare so, its plain-text clients
// wait this long.
const helloTimeout = time.Second

// inboundPortsKey identifies a list of ports.
func inboundPortsKey(ports []inboundPort) string { return fmt.Sprint(ports) }

// inbound returns a listener for connections to the application: for captured connections, or for those
// that began before the proxy started. Its listener filters depend on the ports as little as possible,
// because a change of them closes the connections to all ports.
func (b *builder) inbound(name string, f features, ports []inboundPort, g guard) *listener.Listener {
	var l *listener.Listener
	var destination *listener.ListenerFilter
	if name == earlyInboundName {
		l = deferAccept(listen(name, socket{loopback, contract.RelayInbound}))
		destination = proxyProtocol()
	} else {
		l = listen(name, f.wildcards(contract.InboundPort)...)
		destination = originalDestination()
		if f.transparent {
			l.Transparent = on()
		}
	}
	inspect := listenerFilter("envoy.filters.listener.tls_inspector", &inspector.TlsInspector{})
	inspect.FilterDisabled = notInspected(ports)
	detect(l, helloTimeout, destination, inspect)
	l.TrafficDirection = core.TrafficDirection_INBOUND
	l.FilterChains = rejectOwnPorts()
	for _, p := range ports {
		l.FilterChains = append(l.FilterChains, b.chains(f, p, g)...)
	}
	return l
}

// toApplication forwards bytes to the proxy's own application.
func toApplication() *tcp.TcpProxy {
	proxy := toCluster(applicationCluster)
	proxy.StatPrefix = "inbound"
	return proxy
}

// notInspected matches the ports on which the first bytes make no difference. It does not match ports
// for mutual TLS only, where they make none either, because then the listener would depend on which
// ports these are.
func notInspected(ports []inboundPort) *predicate {
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
func (b *builder) chains(sh features, d inboundPort, g guard) []*listener.FilterChain {
	bytes := append(g.bytes(), tcpProxy(toApplication()))
	app, authenticated := bytes, bytes
	if d.http {
		app = []*listener.Filter{httpToApplication(g)}
		authenticated = app
	} else {
		// The application gets no connection from an unauthenticated client.
		after := toApplication()
		after.UpstreamConnectMode, after.MaxEarlyDataBytes = tcp.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE, uint32Value(0)
		authenticated = append(g.bytes(), tcpProxy(after))
	}
	name := "app"
	match := func() *listener.FilterChainMatch { return &listener.FilterChainMatch{} }
	if d.port != 0 {
		name = "app-" + strconv.Itoa(int(d.port))
		match = func() *listener.FilterChainMatch {
			return &listener.FilterChainMatch{DestinationPort: uint32Value(uint32(d.port))}
		}
	}
	var out []*listener.FilterChain
	add := func(suffix string, m *listener.FilterChainMatch, filters []*listener.Filter, s *core.TransportSocket) {
		out = append(out, &listener.FilterChain{Name: name + suffix, FilterChainMatch: m, Filters: filters, TransportSocket: s})
	}
	if d.mutualTLS {
		m := match()
		if d.plaintext { // otherwise only mutual TLS is accepted, however late
			m.TransportProtocol, m.ApplicationProtocols = "tls", []string{alpn}
		}
		add("-mesh", m, authenticated, downstreamTLS(sh.secrets, b.config.TrustDomain))
		out[0].TransportSocketConnectTimeout = duration(handshakeTimeout)
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
