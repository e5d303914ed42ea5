package wire

import (
	"fmt"
	"net/netip"
	"time"
)

// AwayField is a field number in envoy.service.discovery.v3.DeltaDiscoveryResponse that the API does not
// use. It carries an [Away] for the agent that relays the message. Envoy skips it, as protobuf requires for
// unknown fields.
const AwayField = 1000

// Away contains what an agent needs to respond to its Envoy in place of an unreachable control plane.
//
//	message Away {
//	  repeated bytes service = 1;  // a network: 4 or 16 bytes of address, one of length
//	  bytes http = 2;              // envoy.config.cluster.v3.Cluster, without its name
//	  bytes tcp = 3;
//	  bytes refused = 4;
//	  uint32 grace = 5;            // milliseconds
//	}
type Away struct {
	// Services are networks that contain the virtual addresses of all services, and no address of a pod.
	Services []netip.Prefix
	// Templates of clusters. HTTP and TCP are for an address outside all services: HTTP for requests, TCP
	// for connections in which no HTTP was detected. Refused is for a service that the proxy has not used.
	// The agent appends a name and a load assignment.
	HTTP, TCP, Refused []byte
	// Grace is the time for which the control plane may be unreachable before the agent responds.
	Grace time.Duration
}

// Limits of a message.
const (
	MaxServiceNetworks = 4096
	maxTemplate        = 4 << 10
	maxAway            = 128 << 10 // for all templates together
	maxGrace           = time.Hour
)

const fieldService, fieldHTTP, fieldTCP, fieldRefused, fieldGrace = 1, 2, 3, 4, 5

// Marshal encodes the message.
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

// ParseAway decodes a message. The templates of the result share the memory of raw.
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
