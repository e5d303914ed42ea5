package resource

import (
	"fmt"
	"strconv"
	"strings"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/xds"
)

type (
	outboundKey struct {
		name  string
		shape shape
	}
	earlyKey   string
	inboundKey struct {
		name  string
		shape shape
		doors string
	}
)

// listeners are those that p starts with, for both directions. Their number goes with
// the port numbers of the mesh.
func (v *view) listeners(p *xds.Proxy) []*xds.Resource {
	sh := shapeOf(p)
	out := v.inboundListeners(p, sh)
	out = append(out, v.outboundListener(sh), v.earlyListener())
	for _, port := range v.ports.sniffed() {
		out = append(out, v.sniffedListener(port, sh))
	}
	return out
}

func (v *view) outboundListener(sh shape) *xds.Resource {
	sh = sh.listening()
	return v.fixed(outboundName, outboundKey{outboundName, sh}, func() proto.Message { return v.outbound(sh) })
}

func (v *view) earlyListener() *xds.Resource {
	never := v.ports.unsniffed()
	return v.fixed(earlyName, earlyKey(fmt.Sprint(never)), func() proto.Message { return v.early(never) })
}

func (v *view) sniffedListener(port uint16, sh shape) *xds.Resource {
	sh = sh.listening()
	name := sniffedName(port)
	return v.fixed(name, outboundKey{name, sh}, func() proto.Message { return v.sniffed(sh, port) })
}

func (v *view) inboundListeners(p *xds.Proxy, sh shape) []*xds.Resource {
	doors := doors(workload(v.mesh, p), sh.secrets.some())
	var out []*xds.Resource
	for _, name := range []string{"virtualInbound", "virtualInbound-early"} {
		out = append(out, v.fixed(name, inboundKey{name, sh, doorsText(doors)}, func() proto.Message {
			return named(v.inbound(sh, doors), name)
		}))
	}
	return out
}

func named(list []*listener.Listener, name string) *listener.Listener {
	for _, l := range list {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// listener answers for one listener, or for the target of a gRPC client: nil if there is
// none of that name.
func (v *view) listener(p *xds.Proxy, name string) *xds.Resource {
	if rest, ok := strings.CutPrefix(name, sniffedName(0)[:len(sniffedName(0))-1]); ok {
		port, err := strconv.ParseUint(rest, 10, 16)
		for _, n := range v.ports.sniffed() {
			if err == nil && uint64(n) == port {
				return v.sniffedListener(n, shapeOf(p))
			}
		}
		return nil
	}
	for _, r := range append(v.listeners(p), v.fixed(routed, "inner", func() proto.Message { return v.inner() })) {
		if r != nil && r.Name == name {
			return r
		}
	}
	return v.forClient(p, name)
}
