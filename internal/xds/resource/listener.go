package resource

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/xds"
)

type (
	outboundKey struct {
		name     string
		features features
	}
	earlyKey   string
	serviceKey socket
	inboundKey struct {
		name     string
		features features
		ports    string // [inboundPortsKey]
	}
)

// listeners returns those with which p starts, for both directions. On demand their number
// goes with the port numbers of the mesh.
func (v *snapshot) listeners(p *xds.Proxy) []*xds.Resource {
	f := featuresOf(p)
	out := v.inboundListeners(p, f)
	out = append(out, v.outboundListener(f), v.earlyListener())
	if f.full {
		return v.fullListeners(out, p)
	}
	for _, port := range v.ports.sniffed {
		out = append(out, v.sniffedListener(port, f))
	}
	return append(out, v.internalResource())
}

func (v *snapshot) outboundListener(f features) *xds.Resource {
	f = f.forListeners()
	return v.shared(outboundName, outboundKey{outboundName, f}, func() proto.Message { return v.outbound(f) })
}

func (v *snapshot) earlyListener() *xds.Resource {
	serverFirst := v.ports.unsniffed
	return v.shared(earlyName, earlyKey(fmt.Sprint(serverFirst)), func() proto.Message { return v.early(serverFirst) })
}

func (v *snapshot) sniffedListener(port uint16, f features) *xds.Resource {
	f = f.forListeners()
	name := sniffedName(port)
	return v.shared(name, outboundKey{name, f}, func() proto.Message { return v.sniffed(f, port) })
}

func (v *snapshot) inboundListeners(p *xds.Proxy, f features) []*xds.Resource {
	ports := inboundPorts(workload(v.mesh, p), f.secrets.configured())
	var out []*xds.Resource
	for _, name := range []string{inboundName, earlyInboundName} {
		out = append(out, v.cache.shared.getFor(f, inboundKey{name, f, inboundPortsKey(ports)}, func() *xds.Resource {
			return serialize(name, v.inbound(name, f, ports))
		}))
	}
	return out
}

func (v *snapshot) internalResource() *xds.Resource {
	return v.shared(internalName, "listener", func() proto.Message { return v.internalListener() })
}

// listener returns one listener, or that of the target of a gRPC client; nil if none has
// the name.
func (v *snapshot) listener(p *xds.Proxy, name string) *xds.Resource {
	f := featuresOf(p)
	if rest, ok := strings.CutPrefix(name, sniffedPrefix); ok {
		port, isPort := parsePort(rest)
		switch {
		case isPort && v.sniffs(p, port):
			return v.sniffedListener(port, f)
		case f.full:
			return v.listenerAt(p, rest)
		}
		return nil
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
		return v.earlyListener()
	case internalName:
		return v.internalResource()
	}
	return v.grpcListener(p, name)
}
