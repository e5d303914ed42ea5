package resource

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/mesh"
)

// Away returns the answers that the agents of relayed proxies give while the control plane is away.
// They are the same for all proxies, and for all snapshots with the same networks of services.
func (v *snapshot) Away() []byte { return v.away.message }

// away is the message for one snapshot.
type away struct {
	networks networks
	services []netip.Prefix
	message  []byte // [wire.Away]
}

// newAway returns the message for a mesh with these networks; if they have not changed, the last one.
func (b *builder) newAway(n networks, m *mesh.Mesh, last *away) *away {
	out := &away{networks: n, services: n.services(m)}
	if last != nil && slices.Equal(out.services, last.services) {
		out.message = last.message
		return out
	}
	template := func(prefix string) []byte {
		c := directCluster(address{prefix: prefix}, mesh.HTTP, "", features{}, false)
		c.Name, c.LoadAssignment = "", nil
		return marshal(c)
	}
	// A request gets 503 with its own response flag, see [noControlPlane]; a connection for bytes is
	// reset.
	refused := &cluster.Cluster{
		ConnectTimeout: duration(connectTimeout),
		LoadAssignment: &endpoint.ClusterLoadAssignment{Policy: &endpoint.ClusterLoadAssignment_Policy{
			DropOverloads: []*endpoint.ClusterLoadAssignment_Policy_DropOverload{{
				Category: "away", DropPercentage: &typev3.FractionalPercent{Numerator: 100},
			}},
		}},
	}
	out.message = wire.Away{
		Services: out.services, HTTP: template(httpPrefix), TCP: template(tcpPrefix), Refused: marshal(refused), Grace: b.firstUseTimeout,
	}.Marshal()
	return out
}

// marshal is deterministic, so that an unchanged message is not sent again.
func marshal(m proto.Message) []byte {
	raw, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m) // fails only for a string that is not UTF-8
	return raw
}

// networks count the virtual addresses of services, and the addresses of workloads, by block.
type networks struct{ virtual, workloads map[netip.Prefix]int }

// These are the lengths of blocks. The largest network that a cluster uses for services (a /12, or an
// IPv6 /108) has 256 or 16 of them. If there are many services, every block contains some, and together
// they form one network.
const blockBits4, blockBits6 = 20, 112

func blockOf(a netip.Addr) netip.Prefix {
	bits := blockBits4
	if a.Is6() {
		bits = blockBits6
	}
	p, _ := a.WithZone("").Prefix(bits)
	return p
}

// after returns the counts after changes.
func (n networks) after(services []mesh.Change[mesh.Service], workloads []mesh.Change[mesh.Workload]) networks {
	if len(services)+len(workloads) == 0 {
		return n
	}
	out := networks{maps.Clone(n.virtual), maps.Clone(n.workloads)}
	if n.virtual == nil {
		out = networks{map[netip.Prefix]int{}, map[netip.Prefix]int{}}
	}
	count(out.virtual, services, func(s *mesh.Service) []netip.Addr { return s.Addresses })
	count(out.workloads, workloads, func(w *mesh.Workload) []netip.Addr { return w.Addresses })
	return out
}

// count updates how many addresses each block contains.
func count[T any](in map[netip.Prefix]int, changes []mesh.Change[T], addresses func(*T) []netip.Addr) {
	add := func(object *T, by int) {
		if object == nil {
			return
		}
		for _, a := range addresses(object) {
			block := blockOf(a.Unmap())
			if in[block] += by; in[block] == 0 {
				delete(in, block)
			}
		}
	}
	for _, c := range changes {
		add(c.Old, -1)
		add(c.New, 1)
	}
}

// services returns networks that contain the virtual addresses of all services: whole blocks, or single
// addresses if the block also contains a workload's address. Only if that would be too many are larger
// networks used, which may include workloads.
func (n networks) services(m *mesh.Mesh) []netip.Prefix {
	var out []netip.Prefix
	mixed := false
	for block := range n.virtual { // any order: merged sorts them
		if n.workloads[block] == 0 {
			out = append(out, block)
		} else {
			mixed = true
		}
	}
	if mixed {
		for _, s := range m.Services() {
			for _, a := range s.Addresses {
				if a = a.Unmap(); n.workloads[blockOf(a)] > 0 {
					out = append(out, netip.PrefixFrom(a, a.BitLen()))
				}
			}
		}
	}
	for out = merged(out); len(out) > wire.MaxServiceNetworks; out = merged(out) {
		for i, p := range out {
			out[i] = parent(p)
		}
	}
	return out
}

// merged returns the same set of addresses as the smallest number of networks, sorted.
func merged(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range list {
		if n := len(out); n > 0 && out[n-1].Contains(p.Addr()) {
			continue
		}
		out = append(out, p)
		for n := len(out); n > 1 && out[n-2].Bits() == out[n-1].Bits() && parent(out[n-2]) == parent(out[n-1]); n = len(out) {
			out = append(out[:n-2], parent(out[n-1]))
		}
	}
	return out
}

func parent(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(p.Addr(), max(0, p.Bits()-1)).Masked()
}
