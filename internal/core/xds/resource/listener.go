package resource

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/listeners"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/observe"
	"outrider.dev/internal/core/xds/rbac"
)

type (
	outboundKey struct {
		name     string
		features features.Features
		ports    string // ports and ranges of services
	}
	serviceKey struct {
		at      netip.AddrPort
		relayed bool
	}
	inboundKey struct {
		name     string
		features features.Features
		ports    string // the application's ports
		guard    string
		services string // [servicesKey]
	}
)

// listeners returns the listeners with which p starts, for both directions. Their number depends on the
// port numbers in the mesh.
func (v *snapshot) listeners(p *xds.Proxy) []*xds.Resource {
	f := features.Of(p)
	out := append(v.inbound(p, f, names.Inbound, names.EarlyInbound), v.outbound(names.Outbound, f), v.outbound(names.EarlyOutbound, f))
	for _, port := range v.ports.sniffed {
		out = append(out, v.outbound(names.Sniffed(port), f))
	}
	out = append(out, v.outbound(names.Internal, f), v.outbound(names.Late, f))
	return v.ownListeners(out, p)
}

// ownListeners adds listeners for virtual addresses at which the server speaks first, see
// hasOwnListener.
func (v *snapshot) ownListeners(out []*xds.Resource, p *xds.Proxy) []*xds.Resource {
	count := map[uint16]int{}
	for _, t := range v.serverFirst() {
		if count[t.Port.Number] == maxOwnListeners || !v.mesh.Visible(t.Service, p.Namespace) {
			continue
		}
		count[t.Port.Number]++
		for _, a := range t.Service.Addresses {
			if v.mesh.ByAddress(a) == t.Service {
				out = append(out, v.serviceListener(p, t, netip.AddrPortFrom(a.Unmap(), t.Port.Number)))
			}
		}
	}
	return out
}

// withoutColons replaces the colons of addresses in listeners' names, and withColons restores them. The names are
// Istio's: "outbound_10.96.0.1_80", "outbound_[fd96__1]_80".
var withoutColons, withColons = strings.NewReplacer(":", "_"), strings.NewReplacer("_", ":")

// listenerAt returns the listener for a virtual address and port, given as in its name; nil if p has
// none.
func (v *snapshot) listenerAt(p *xds.Proxy, name string) *xds.Resource {
	a, ok := names.ParseAddress(names.TCP + withColons.Replace(name))
	if !ok || strings.Contains(name, ":") {
		return nil
	}
	t, ok := v.serviceAt(p, a.To)
	if !ok || !v.hasOwnListener(t) {
		return nil
	}
	return v.serviceListener(p, t, a.To)
}

// serviceListener returns the listener for a virtual address and port; nil for a port of the proxy
// itself.
func (v *snapshot) serviceListener(p *xds.Proxy, t names.Target, at netip.AddrPort) *xds.Resource {
	if slices.Contains(mesh.ProxyPorts, t.Port.Number) {
		return nil
	}
	t = t.WithFamily(names.FamilyOf(at.Addr()))
	return v.cache.of(t.Service).get(serviceKey{at, p.Relayed}, func() *xds.Resource {
		name, f := names.SniffedPrefix+withoutColons.Replace(at.String()), features.Of(p)
		return serialize(name, v.observe(v.builder().ServerFirst(f, name, at), f, nil))
	})
}

// listServerFirst returns the services' ports that may have their own listeners.
func (v *snapshot) listServerFirst() []names.Target {
	if !slices.ContainsFunc(v.ports.sniffed, func(n uint16) bool { return v.ports.own[n] > 0 }) {
		return nil
	}
	var out []names.Target
	for _, s := range v.mesh.Services() {
		for i := range s.Ports {
			if t := (names.Target{Service: s, Port: &s.Ports[i]}); v.hasOwnListener(t) && len(s.Addresses) > 0 {
				out = append(out, t)
			}
		}
	}
	return out
}

// outbound returns an outbound listener that does not depend on a single service; nil if none has this
// name.
func (v *snapshot) outbound(name string, f features.Features) *xds.Resource {
	b, of := v.builder(), features.Features{Relayed: f.Relayed, Sampling: f.Sampling}
	key := outboundKey{name, of, v.rangesKey()}
	port, isPort := names.ParsePort(strings.TrimPrefix(name, names.SniffedPrefix))
	var build func() *listener.Listener
	switch {
	case name == names.Outbound:
		key.features = f.ForListeners()
		build = func() *listener.Listener { return b.Outbound(f) }
	case name == names.EarlyOutbound:
		key.ports += fmt.Sprint(v.ports.unsniffed)
		build = func() *listener.Listener { return b.Early(f, v.ports.unsniffed) }
	case isPort && name == names.Sniffed(port) && slices.Contains(v.ports.sniffed, port):
		key.features = f.ForListeners()
		build = func() *listener.Listener { return b.Sniffed(f, port) }
	case name == names.Internal:
		key = outboundKey{name: name, features: features.Features{Relayed: f.Relayed}} // not traced, see observe
		build = func() *listener.Listener { return b.Internal(f) }
	case name == names.Late:
		build = func() *listener.Listener { return b.Late(f) }
	default:
		return nil
	}
	return v.shared(name, key, func() proto.Message { return v.observe(build(), f, nil) })
}

// inbound returns the inbound listeners with these names.
func (v *snapshot) inbound(p *xds.Proxy, f features.Features, which ...string) (out []*xds.Resource) {
	w := features.Workload(v.mesh, p)
	ports, g := listeners.InboundPorts(w, f), rbac.Guard{Authorization: v.mesh.Authorization(w, p.Namespace), TrustDomain: v.config.TrustDomain}
	var services map[uint16]telemetry.Service // for which requests to w are counted, by port
	if v.telemetry(f).Metrics {
		services = observe.ServicesByPort(v.mesh, w)
	}
	for _, name := range which {
		key := inboundKey{name, f, fmt.Sprint(ports), g.Key(), servicesKey(services)}
		out = append(out, v.cache.shared.getFor(f, key, func() *xds.Resource {
			return serialize(name, v.observe(v.builder().Inbound(name, f, ports, g), f, services))
		}))
	}
	return out
}

// listener returns one listener, or the listener for the target of a gRPC client; nil if there is none
// with this name.
func (v *snapshot) listener(p *xds.Proxy, name string) *xds.Resource {
	f := features.Of(p)
	if r := v.outbound(name, f); r != nil {
		return r
	}
	if rest, ok := strings.CutPrefix(name, names.SniffedPrefix); ok {
		return v.listenerAt(p, rest)
	}
	if name == names.Inbound || name == names.EarlyInbound {
		return v.inbound(p, f, name)[0]
	}
	return v.grpcListener(p, name)
}

func (v *snapshot) builder() listeners.Builder {
	return listeners.Builder{TrustDomain: v.config.TrustDomain, MinTLS: v.config.MinTLS, Networks: v.config.Networks, Ranges: v.serviceRanges(), FirstUseTimeout: v.firstUseTimeout}
}

// observe adds access logs, tracing and request statistics to a listener of a proxy.
func (v *snapshot) observe(l *listener.Listener, f features.Features, services map[uint16]telemetry.Service) *listener.Listener {
	return observe.Listener(l, v.telemetry(f), f.Sampling, services)
}

// telemetry returns the settings for a proxy. Requests are counted only if it has an agent, which gives the
// statistics Istio's names.
func (v *snapshot) telemetry(f features.Features) telemetry.Settings {
	s := v.config.Telemetry
	s.Metrics = s.Metrics && f.Relayed
	return s
}

func servicesKey(services map[uint16]telemetry.Service) string {
	if len(services) == 0 {
		return ""
	}
	return fmt.Sprint(services) // printed in the order of its keys
}
