package resource

import (
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspector "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"outrider.dev/internal/mesh"
)

// A door is how a port of the application may be entered.
type door struct {
	port       uint16 // 0: every other
	http       bool   // requests are seen
	mesh       bool   // by mutual TLS
	plain      bool   // and as it comes
	appsOwnTLS bool   // what comes plainly may be TLS, and is told apart
}

// doors are those of a workload; nil is one that is not known (yet): then only the mesh
// may enter, because a policy may say so. The last is for every other port.
func doors(w *mesh.Workload, canTLS bool) []door {
	if w == nil {
		return []door{{mesh: canTLS}}
	}
	var out []door
	for _, p := range w.Ports {
		d := doorOf(p, canTLS)
		if p.Protocol == mesh.ServerFirst && p.TLS == mesh.Permissive {
			d = door{port: p.Number, plain: true} // nothing may be waited for: see mutual
		}
		out = append(out, d)
	}
	return append(out, doorOf(mesh.AppPort{Protocol: mesh.TCP, TLS: w.TLS}, canTLS))
}

func doorOf(p mesh.AppPort, canTLS bool) door {
	d := door{port: p.Number, http: p.Protocol.IsHTTP()}
	d.mesh = p.TLS != mesh.Disable && canTLS
	d.plain = p.TLS != mesh.Strict
	d.appsOwnTLS = d.plain && (d.mesh || d.http)
	return d
}

// doorsText tells sets of doors apart.
func doorsText(doors []door) string {
	var b strings.Builder
	for _, d := range doors {
		b.WriteString(strconv.Itoa(int(d.port)))
		for _, f := range []bool{d.http, d.mesh, d.plain, d.appsOwnTLS} {
			b.WriteByte(map[bool]byte{true: '+', false: '-'}[f])
		}
	}
	return b.String()
}

// inbound are the listeners for what the application is sent: one, and its twin for what
// came before the proxy did.
func (b *builder) inbound(sh shape, doors []door) []*listener.Listener {
	main := listen("virtualInbound", sh.wildcards(inboundPort)...)
	main.ListenerFilters = []*listener.ListenerFilter{originalDestination(), tellTLS(doors)}
	if sh.transparent {
		main.Transparent = yes()
	}
	early := headed(listen("virtualInbound-early", socket{loopback, inboundEarly}))
	early.ListenerFilters = []*listener.ListenerFilter{proxyProtocol(), tellTLS(doors)}
	for _, l := range []*listener.Listener{main, early} {
		l.TrafficDirection = core.TrafficDirection_INBOUND
		l.ListenerFiltersTimeout = lasting(sniffTimeout)
		l.ContinueOnListenerFiltersTimeout = true
		l.FilterChains = closed()
		for _, d := range doors {
			l.FilterChains = append(l.FilterChains, b.chains(sh, d)...)
		}
	}
	return []*listener.Listener{main, early}
}

// tellTLS looks for TLS in the first bytes, except where it would change nothing.
func tellTLS(doors []door) *listener.ListenerFilter {
	f := listenerFilter("envoy.filters.listener.tls_inspector", &inspector.TlsInspector{})
	var blind, seen []*listener.ListenerFilterChainMatchPredicate
	for _, d := range doors {
		switch looks := d.mesh || d.appsOwnTLS; {
		case d.port == 0 && !looks:
			// Every port but those that are looked at.
			f.FilterDisabled = not(anyOf(seen))
			return f
		case looks:
			seen = append(seen, onPort(d.port))
		default:
			blind = append(blind, onPort(d.port))
		}
	}
	f.FilterDisabled = anyOf(blind)
	return f
}

type predicate = listener.ListenerFilterChainMatchPredicate

func onPort(port uint16) *predicate {
	return &predicate{Rule: &listener.ListenerFilterChainMatchPredicate_DestinationPortRange{
		DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port) + 1},
	}}
}

// anyOf is nil, never, without rules; the API wants two for an "or".
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

// chains are the ways through a door. Envoy takes the chain that says most, and does not
// go back to one that says less: so where our TLS is told apart by its protocol, TLS of
// another needs a chain too.
func (b *builder) chains(sh shape, d door) []*listener.FilterChain {
	carry := toCluster(toApp)
	carry.StatPrefix = "inbound"
	bytes := network("envoy.filters.network.tcp_proxy", carry)
	app := bytes
	if d.http {
		app = toApplication()
	}
	name := "app"
	match := func() *listener.FilterChainMatch { return &listener.FilterChainMatch{} }
	if d.port != 0 {
		name = "app-" + strconv.Itoa(int(d.port))
		match = func() *listener.FilterChainMatch {
			return &listener.FilterChainMatch{DestinationPort: number(uint32(d.port))}
		}
	}
	var out []*listener.FilterChain
	add := func(suffix string, m *listener.FilterChainMatch, f *listener.Filter, s *core.TransportSocket) {
		out = append(out, &listener.FilterChain{Name: name + suffix, FilterChainMatch: m, Filters: []*listener.Filter{f}, TransportSocket: s})
	}
	if d.mesh {
		m := match()
		m.TransportProtocol, m.ApplicationProtocols = "tls", []string{alpn}
		add("-mesh", m, app, serveTLS(sh.secrets, b.config.TrustDomain))
	}
	if d.appsOwnTLS {
		m := match()
		m.TransportProtocol = "tls"
		add("-tls", m, bytes, nil)
	}
	if d.plain {
		add("", match(), app, nil)
	}
	return out
}
