package resource

import (
	"net/netip"
	"slices"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/clusters"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/networks"
)

// Away returns the answers that the agents of relayed proxies give while the control plane is unreachable.
// They are the same for all proxies, and for all snapshots with the same networks of services.
func (v *snapshot) Away() []byte { return v.away.message }

// away is the message for one snapshot.
type away struct {
	networks networks.Blocks
	services []netip.Prefix
	message  []byte // [wire.Away]
}

// newAway returns the message for the mesh m with the blocks n. It reuses the last message if the networks of
// services have not changed.
func (v *snapshot) newAway(n networks.Blocks, m *mesh.Mesh, last *away) *away {
	out := &away{networks: n, services: n.Services(m)}
	if last != nil && slices.Equal(out.services, last.services) {
		out.message = last.message
		return out
	}
	template := func(prefix string) []byte {
		c := clusters.Direct(names.Address{Prefix: prefix}, mesh.HTTP, "", features.Features{}, false)
		c.Name, c.LoadAssignment = "", nil
		return marshal(c)
	}
	// A request gets 503 with its own response flag, see noControlPlane in package listeners; a
	// connection for bytes is reset.
	refused := &cluster.Cluster{
		ConnectTimeout: durationpb.New(clusters.ConnectTimeout),
		LoadAssignment: &endpoint.ClusterLoadAssignment{Policy: &endpoint.ClusterLoadAssignment_Policy{
			DropOverloads: []*endpoint.ClusterLoadAssignment_Policy_DropOverload{{
				Category: "away", DropPercentage: &typev3.FractionalPercent{Numerator: 100},
			}},
		}},
	}
	out.message = wire.Away{
		Services: out.services, HTTP: template(names.HTTP), TCP: template(names.TCP), Refused: marshal(refused), Grace: v.firstUseTimeout,
	}.Marshal()
	return out
}

// marshal is deterministic, so that an unchanged message is not sent again.
func marshal(m proto.Message) []byte {
	raw, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m) // the call fails only for a string that is not UTF-8
	return raw
}
