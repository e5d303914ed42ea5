package resource

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

type (
	outboundKey struct {
		name     string
		features features
		ports    string // ports and ranges of services
	}
	// whether the proxy is relayed
	internalListenerKey bool
	serviceKey          struct {
		at      socket
		relayed bool
	}
	inboundKey struct {
		name     string
		features features
		ports    string // [inboundPortsKey]
		guard    string
		services string // [servicesKey]
	}
)

// listeners returns the listeners with which p starts, for both directions. Their number depends on the
// port numbers in the mesh.
func (v *snapshot) listeners(p *xds.Proxy) []*xds.Resource {
	f := featuresOf(p)
	out := v.inboundListeners(p, f)
	out = append(out, v.outboundListener(f), v.earlyListener(f))
	for _, port := range v.ports.sniffed {
		out = append(out, v.sniffedListener(port, f))
	}
	out = append(out, v.internalResource(f), v.lateResource(f))
	return v.ownListeners(out, p)
}

// ownListeners adds listeners for virtual addresses at which the server speaks first, see
// hasOwnListener.
func (v *snapshot) ownListeners(out []*xds.Resource, p *xds.Proxy) []*xds.Resource {
	count := map[uint16]int{}
	for _, t := range v.serverFirst() {
		if count[t.port.Number] == maxOwnListeners || !v.mesh.Visible(t.service, p.Namespace) {
			continue
		}
		count[t.port.Number]++
		for _, a := range t.service.Addresses {
			if v.mesh.ByAddress(a) == t.service {
				out = append(out, v.serviceListener(p, t, socket{a.Unmap(), t.port.Number}))
			}
		}
	}
	return out
}

// These replace the colons of addresses in listeners' names, as in Istio: "outbound_10.96.0.1_80",
// "outbound_[fd96__1]_80".
var withoutColons, withColons = strings.NewReplacer(":", "_"), strings.NewReplacer("_", ":")

// listenerAt returns the listener for a virtual address and port, given as in its name; nil if p has
// none.
func (v *snapshot) listenerAt(p *xds.Proxy, name string) *xds.Resource {
	a, ok := parseAddress(tcpPrefix + withColons.Replace(name))
	if !ok || strings.Contains(name, ":") {
		return nil
	}
	t, ok := v.serviceAt(p, a.to)
	if !ok || !v.hasOwnListener(t) {
		return nil
	}
	return v.serviceListener(p, t, socket{a.to.Addr(), a.to.Port()})
}

// serviceListener returns the listener for a virtual address and port; nil for a port of the proxy
// itself.
func (v *snapshot) serviceListener(p *xds.Proxy, t target, at socket) *xds.Resource {
	if slices.Contains(mesh.ProxyPorts, t.port.Number) {
		return nil
	}
	t = t.withFamily(familyOf(at.host))
	return v.cache.of(t.service).get(serviceKey{at, p.Relayed}, func() *xds.Resource {
		name := sniffedPrefix + withoutColons.Replace(netip.AddrPortFrom(at.host, at.port).String())
		l := listen(name, at)
		l.BindToPort = off()
		l.TrafficDirection = core.TrafficDirection_OUTBOUND
		l.FilterChains = []*listener.FilterChain{byAddress("tcp", tcpPrefix, toService(passthroughCluster), v.firstUse(featuresOf(p)), v.config.Networks)}
		l.DefaultFilterChain = passthroughChain()
		return serialize(name, v.observe(l, featuresOf(p), nil))
	})
}

// listServerFirst returns the services' ports that may have their own listeners.
func (v *snapshot) listServerFirst() []target {
	if !slices.ContainsFunc(v.ports.sniffed, func(n uint16) bool { return v.ports.own[n] > 0 }) {
		return nil
	}
	var out []target
	for _, s := range v.mesh.Services() {
		for i := range s.Ports {
			if t := (target{service: s, port: &s.Ports[i]}); v.hasOwnListener(t) && len(s.Addresses) > 0 {
				out = append(out, t)
			}
		}
	}
	return out
}

func (v *snapshot) outboundListener(f features) *xds.Resource {
	f = f.forListeners()
	return v.shared(outboundName, outboundKey{outboundName, f, v.rangesKey()}, func() proto.Message { return v.observe(v.outbound(f), f, nil) })
}

func (v *snapshot) earlyListener(f features) *xds.Resource {
	serverFirst := v.ports.unsniffed
	return v.shared(earlyName, outboundKey{earlyName, features{relayed: f.relayed, sampling: f.sampling}, fmt.Sprint(serverFirst, v.rangesKey())}, func() proto.Message { return v.observe(v.early(f, serverFirst), f, nil) })
}

func (v *snapshot) sniffedListener(port uint16, f features) *xds.Resource {
	f = f.forListeners()
	name := sniffedName(port)
	return v.shared(name, outboundKey{name, f, v.rangesKey()}, func() proto.Message { return v.observe(v.sniffed(f, port), f, nil) })
}

func (v *snapshot) inboundListeners(p *xds.Proxy, f features) []*xds.Resource {
	w := workload(v.mesh, p)
	ports, g := inboundPorts(w, f), guard{v.mesh.Authorization(w, p.Namespace), v.config.TrustDomain}
	services := v.servicesByPort(w, f)
	var out []*xds.Resource
	add := func(name string, build func() *listener.Listener) {
		key := inboundKey{name, f, inboundPortsKey(ports), g.key(), servicesKey(services)}
		out = append(out, v.cache.shared.getFor(f, key, func() *xds.Resource {
			return serialize(name, v.observe(build(), f, services))
		}))
	}
	for _, name := range []string{inboundName, earlyInboundName} {
		add(name, func() *listener.Listener { return v.inbound(name, f, ports, g) })
	}
	return out
}

func (v *snapshot) internalResource(f features) *xds.Resource {
	return v.shared(internalName, internalListenerKey(f.relayed), func() proto.Message { return v.observe(v.internalListener(f), f, nil) })
}

// listener returns one listener, or the listener for the target of a gRPC client; nil if there is none
// with this name.
func (v *snapshot) listener(p *xds.Proxy, name string) *xds.Resource {
	f := featuresOf(p)
	if rest, ok := strings.CutPrefix(name, sniffedPrefix); ok {
		port, isPort := parsePort(rest)
		switch {
		case isPort && slices.Contains(v.ports.sniffed, port):
			return v.sniffedListener(port, f)
		case isPort:
			return nil
		}
		return v.listenerAt(p, rest)
	}
	switch name {
	case inboundName, earlyInboundName:
		for _, r := range v.inboundListeners(p, f) {
			if r != nil && r.Name == name {
				return r
			}
		}
		return nil
	case outboundName:
		return v.outboundListener(f)
	case earlyName:
		return v.earlyListener(f)
	case internalName:
		return v.internalResource(f)
	case lateName:
		return v.lateResource(f)
	}
	return v.grpcListener(p, name)
}
