package resource

import (
	"fmt"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspector "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"outrider.dev/internal/contract"
	"outrider.dev/internal/mesh"
)

// An inboundPort is how connections to a port of the application are accepted.
type inboundPort struct {
	port      uint16 // 0: every other
	http      bool
	mutualTLS bool
	plaintext bool
	appTLS    bool // plain text may be TLS of the application, and is detected
}

// inboundPorts returns those of a workload; the last is for every other port. A workload
// that is not known (yet) accepts mutual TLS only, because a policy may require it.
func inboundPorts(w *mesh.Workload, canTLS bool) []inboundPort {
	if w == nil {
		return []inboundPort{{mutualTLS: canTLS}}
	}
	var out []inboundPort
	for _, p := range w.Ports {
		d := inboundPortOf(p, canTLS)
		if p.Protocol == mesh.ServerFirst && p.TLS == mesh.Permissive {
			d = inboundPort{port: p.Number, plaintext: true} // no inspector may wait for the client: see mutual
		}
		out = append(out, d)
	}
	return append(out, inboundPortOf(mesh.AppPort{Protocol: mesh.TCP, TLS: w.TLS}, canTLS))
}

func inboundPortOf(p mesh.AppPort, canTLS bool) inboundPort {
	d := inboundPort{port: p.Number, http: p.Protocol.IsHTTP()}
	d.mutualTLS = p.TLS != mesh.Disable && canTLS
	d.plaintext = p.TLS != mesh.Strict
	d.appTLS = d.plaintext && (d.mutualTLS || d.http)
	return d
}

// inboundPortsKey identifies a list of ports.
func inboundPortsKey(ports []inboundPort) string { return fmt.Sprint(ports) }

// inbound returns a listener for connections to the application: the one for captured
// connections, or the one for those that came before the proxy started.
func (b *builder) inbound(name string, f features, ports []inboundPort) *listener.Listener {
	var l *listener.Listener
	if name == earlyInboundName {
		l = deferAccept(listen(name, socket{loopback, contract.RelayInbound}))
		detect(l, proxyProtocol(), tlsInspector(ports))
	} else {
		l = listen(name, f.wildcards(contract.InboundPort)...)
		detect(l, originalDestination(), tlsInspector(ports))
		if f.transparent {
			l.Transparent = on()
		}
	}
	l.TrafficDirection = core.TrafficDirection_INBOUND
	l.FilterChains = rejectOwnPorts()
	for _, p := range ports {
		l.FilterChains = append(l.FilterChains, b.chains(f, p)...)
	}
	return l
}

// tlsInspector detects TLS in the first bytes, except on ports where it makes no difference.
func tlsInspector(ports []inboundPort) *listener.ListenerFilter {
	f := listenerFilter("envoy.filters.listener.tls_inspector", &inspector.TlsInspector{})
	var excluded, inspected []*listener.ListenerFilterChainMatchPredicate
	for _, d := range ports {
		switch inspect := d.mutualTLS || d.appTLS; {
		case d.port == 0 && !inspect:
			// Every port but those that are inspected.
			f.FilterDisabled = not(anyOf(inspected))
			return f
		case inspect:
			inspected = append(inspected, onPort(d.port))
		default:
			excluded = append(excluded, onPort(d.port))
		}
	}
	f.FilterDisabled = anyOf(excluded)
	return f
}

type predicate = listener.ListenerFilterChainMatchPredicate

func onPort(port uint16) *predicate {
	return &predicate{Rule: &listener.ListenerFilterChainMatchPredicate_DestinationPortRange{
		DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port) + 1},
	}}
}

// anyOf returns nil without rules; the API requires two for an "or".
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

// chains returns the filter chains of a port. Envoy selects the most specific match, and
// does not fall back to a less specific one: so where the mesh's TLS is matched by its
// ALPN, other TLS needs a chain too.
func (b *builder) chains(sh features, d inboundPort) []*listener.FilterChain {
	proxy := toCluster(applicationCluster)
	proxy.StatPrefix = "inbound"
	bytes := tcpProxy(proxy)
	app := bytes
	if d.http {
		app = httpToApplication()
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
	add := func(suffix string, m *listener.FilterChainMatch, f *listener.Filter, s *core.TransportSocket) {
		out = append(out, &listener.FilterChain{Name: name + suffix, FilterChainMatch: m, Filters: []*listener.Filter{f}, TransportSocket: s})
	}
	if d.mutualTLS {
		m := match()
		m.TransportProtocol, m.ApplicationProtocols = "tls", []string{alpn}
		add("-mesh", m, app, downstreamTLS(sh.secrets, b.config.TrustDomain))
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
