package wire

import (
	"fmt"
	"net/netip"
	"time"
)

// AwayField is the number of a field of envoy.service.discovery.v3.DeltaDiscoveryResponse that
// the API does not have: an [Away], for the agent that relays the message. Envoy skips it, as
// protobuf requires of unknown fields.
const AwayField = 1000

// Away is what an agent needs to respond to its Envoy in place of a control plane that cannot be
// reached.
//
//	message Away {
//	  repeated bytes service = 1;  // a network: 4 or 16 bytes of address, one of length
//	  bytes http = 2;              // envoy.config.cluster.v3.Cluster, without its name
//	  bytes tcp = 3;
//	  bytes refused = 4;
//	  uint32 grace = 5;            // milliseconds
//	}
type Away struct {
	// Services are networks that contain the virtual addresses of all services, and the address
	// of no pod.
	Services []netip.Prefix
	// Templates of clusters: of an address that is no service's, for requests and for bytes; and
	// of a service that the proxy has not used. A name and a load assignment are appended.
	HTTP, TCP, Refused []byte
	// Grace is how long the control plane may be away before the agent responds.
	Grace time.Duration
}

// Bounds of a message.
const (
	MaxServiceNetworks = 4096
	maxTemplate        = 4 << 10
	maxAway            = 128 << 10 // all of these
	maxGrace           = time.Hour
)

const fieldService, fieldHTTP, fieldTCP, fieldRefused, fieldGrace = 1, 2, 3, 4, 5

// Marshal returns the message.
func (a Away) Marshal() []byte {
	var b []byte
	for _, p := range a.Services {
		b = AppendField(b, fieldService, append(p.Addr().AsSlice(), byte(p.Bits())))
	}
	b = AppendField(b, fieldHTTP, a.HTTP)
	b = AppendField(b, fieldTCP, a.TCP)
	b = AppendField(b, fieldRefused, a.Refused)
	return AppendVarint(b, fieldGrace, uint64(a.Grace/time.Millisecond))
}

// ParseAway reads a message. The templates share its memory.
func ParseAway(raw []byte) (Away, error) {
	if len(raw) > maxAway {
		return Away{}, fmt.Errorf("away: %d bytes; at most %d", len(raw), maxAway)
	}
	var a Away
	err := Fields(raw, func(f Field) error {
		switch {
		case f.Number == fieldGrace && f.Kind == VarintField:
			a.Grace = time.Duration(min(f.Varint, uint64(maxGrace/time.Millisecond))) * time.Millisecond
		case f.Kind != BytesField:
		case f.Number == fieldService:
			return a.addService(f.Bytes)
		case len(f.Bytes) > maxTemplate:
			return fmt.Errorf("field %d: %d bytes; at most %d", f.Number, len(f.Bytes), maxTemplate)
		case f.Number == fieldHTTP:
			a.HTTP = f.Bytes
		case f.Number == fieldTCP:
			a.TCP = f.Bytes
		case f.Number == fieldRefused:
			a.Refused = f.Bytes
		}
		return nil
	})
	if err != nil {
		return Away{}, fmt.Errorf("away: %w", err)
	}
	return a, nil
}

func (a *Away) addService(raw []byte) error {
	n := len(raw) - 1
	address, ok := netip.AddrFromSlice(raw[:max(n, 0)])
	if !ok || int(raw[n]) > address.BitLen() {
		return fmt.Errorf("field service: %x; want 4 or 16 bytes of address and one of length", raw)
	}
	if len(a.Services) == MaxServiceNetworks {
		return fmt.Errorf("field service: more than %d", MaxServiceNetworks)
	}
	a.Services = append(a.Services, netip.PrefixFrom(address, int(raw[n])))
	return nil
}
