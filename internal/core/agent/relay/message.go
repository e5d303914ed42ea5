package relay

import (
	"fmt"

	"outrider.dev/internal/base/wire"
)

// Types of resources to which Envoy subscribes by single names:
const (
	typePrefix   = "type.googleapis.com/envoy.config."
	clusterType  = typePrefix + "cluster.v3.Cluster"
	endpointType = typePrefix + "endpoint.v3.ClusterLoadAssignment"
	hostType     = typePrefix + "route.v3.VirtualHost"
	listenerType = typePrefix + "listener.v3.Listener"
)

// A request contains the used fields of envoy.service.discovery.v3.DeltaDiscoveryRequest.
type request struct {
	typeURL                string
	subscribe, unsubscribe []string
	initial                map[string]string // versions of the resources that Envoy has, by name
	nonce                  string            // of the response that Envoy accepts or rejects
	rejected               bool
}

func parseRequest(raw []byte) (q request, err error) {
	err = wire.Fields(raw, func(f wire.Field) error {
		if len(q.subscribe)+len(q.unsubscribe)+len(q.initial) > maxNames {
			return errNames
		}
		switch f.Number {
		case 2:
			q.typeURL = string(f.Bytes)
		case 3:
			q.subscribe = append(q.subscribe, string(f.Bytes))
		case 4:
			q.unsubscribe = append(q.unsubscribe, string(f.Bytes))
		case 5:
			if q.initial == nil {
				q.initial = map[string]string{}
			}
			var name, version string
			if err := wire.Fields(f.Bytes, func(f wire.Field) error {
				switch f.Number {
				case 1:
					name = string(f.Bytes)
				case 2:
					version = string(f.Bytes)
				}
				return nil
			}); err != nil {
				return err
			}
			q.initial[name] = version
		case 6:
			q.nonce = string(f.Bytes)
		case 7:
			q.rejected = true
		}
		return nil
	})
	return q, err
}

// A response contains the used fields of envoy.service.discovery.v3.DeltaDiscoveryResponse.
type response struct {
	typeURL, nonce string
	resources      []resource
	removed        []string
	away           []byte // encoded wire.Away; nil: none
	size           int    // approximate memory in bytes
}

// maxNames bounds the number of names in a message: a name may take only three bytes there, but takes a hundred
// in memory. Ten services of 10,000 resources each have fewer names.
const maxNames = 1 << 17

var errNames = fmt.Errorf("a message with more than %d names", maxNames)

// A resource is a message envoy.service.discovery.v3.Resource.
type resource struct {
	name, version string
	raw           []byte // the whole message
}

// parseResponse parses a message. The resources share its memory.
func parseResponse(raw []byte) (p response, err error) {
	p.size = len(raw) + overhead
	err = wire.Fields(raw, func(f wire.Field) error {
		if len(p.resources)+len(p.removed) > maxNames {
			return errNames
		}
		switch f.Number {
		case 2:
			r, err := parseResource(f.Bytes)
			p.resources = append(p.resources, r)
			return err
		case 4:
			p.typeURL = string(f.Bytes)
		case 5:
			p.nonce = string(f.Bytes)
		case 6:
			p.removed = append(p.removed, string(f.Bytes))
		case wire.AwayField:
			p.away = f.Bytes
		}
		return nil
	})
	p.size += overhead * (len(p.resources) + len(p.removed))
	return p, err
}

func parseResource(raw []byte) (r resource, err error) {
	r.raw = raw
	err = wire.Fields(raw, func(f wire.Field) error {
		switch f.Number {
		case 1:
			r.version = string(f.Bytes)
		case 3:
			r.name = string(f.Bytes)
		}
		return nil
	})
	return r, err
}

// marshal returns the encoded message.
func (p response) marshal() []byte {
	m := make([]byte, 0, p.size)
	for _, r := range p.resources {
		m = wire.AppendField(m, 2, r.raw)
	}
	m = wire.AppendField(m, 4, p.typeURL)
	return wire.AppendField(m, 5, p.nonce)
}
