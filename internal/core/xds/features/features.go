// Package features reduces a proxy to the properties on which its resources depend, so that proxies
// with the same features share resources. It promises to take a workload's identity from the proxy's
// certificate and nothing from its claims alone.
package features

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/mtls"
)

// Features are the properties of a proxy, except its workload, on which its resources depend. Proxies
// with the same features share resources.
type Features struct {
	Secrets     mtls.Secrets
	Groups      mtls.Groups
	V4, V6      bool // address families of its listeners
	Transparent bool
	GRPC        bool   // a gRPC client without a proxy
	Relayed     bool   // its agent answers while the control plane is unreachable
	Sampling    string // see samplingOf
}

// Shared reports whether other proxies probably have the same features. A directory of secrets is
// chosen by each proxy alone.
func (f Features) Shared() bool { return f.Secrets.Dir == "" }

// Of returns the features of a proxy.
func Of(p *xds.Proxy) Features {
	s := Features{
		Secrets:     mtls.SecretsOf(p),
		Transparent: p.Metadata[contract.MetadataInterception] == "TPROXY",
		GRPC:        p.GRPC,
		Relayed:     p.Relayed,
		Sampling:    samplingOf(p),
	}
	if s.GRPC {
		s.Secrets = mtls.Secrets{} // endpoints with different transport sockets are unsupported
	}
	if s.Secrets.Configured() {
		s.Groups = mtls.GroupsOf(p)
	}
	for _, a := range p.Addresses {
		if a.Unmap().Is4() {
			s.V4 = true
		} else {
			s.V6 = true
		}
	}
	if !s.V6 {
		s.V4 = true
	}
	return s
}

// ForClusters returns the features on which clusters depend.
func (f Features) ForClusters() Features {
	return Features{Secrets: f.Secrets, Groups: f.Groups, GRPC: f.GRPC, Relayed: f.Relayed}
}

// ForListeners returns the features on which outbound listeners depend.
func (f Features) ForListeners() Features {
	return Features{V4: f.V4, V6: f.V6, Relayed: f.Relayed, Sampling: f.Sampling}
}

// Workload returns the workload of a proxy, or nil. The proxy claims a name and addresses, but the
// workload must have the identity in the proxy's certificate.
func Workload(m *mesh.Mesh, p *xds.Proxy) *mesh.Workload {
	var found []*mesh.Workload
	// The name in the proxy's ID is looked up first, because a pod's addresses are known to the cluster only
	// after it has started.
	if id, err := xds.ParseNodeID(p.ID); err == nil && id.Name != "" {
		found = append(found, m.Pod(p.Namespace, id.Name), m.Host(p.Namespace, id.Name))
	}
	for _, a := range p.Addresses {
		found = append(found, m.Workload(a, p.Namespace))
	}
	i := slices.IndexFunc(found, func(w *mesh.Workload) bool {
		return w != nil && w.Namespace == p.Namespace && w.ServiceAccount == p.ServiceAccount
	})
	if i < 0 {
		return nil
	}
	return found[i]
}

// Wildcards returns the wildcard addresses of a listener, one for each of the proxy's families, and at least one.
func (f Features) Wildcards(port uint16) []netip.AddrPort {
	var out []netip.AddrPort
	if f.V4 {
		out = append(out, netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	}
	if f.V6 {
		out = append(out, netip.AddrPortFrom(netip.IPv6Unspecified(), port))
	}
	return out
}

// samplingOf returns the percentage of requests that a proxy wants to be traced; empty: the mesh's. It
// is rounded to integers above 1 and to hundredths below, because proxies choose it and each value
// needs its own set of listeners.
func samplingOf(p *xds.Proxy) string {
	n, err := strconv.ParseFloat(p.Metadata[contract.MetadataSampling], 64)
	switch {
	case err != nil || telemetry.CheckSampling(n) != nil:
		return ""
	case n < 1:
		n = math.Ceil(n*100) / 100
	default:
		n = math.Round(n)
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// Timeouts of proxies whose agent answers while the control plane is unreachable.
const (
	// relayedFirstUseTimeout is only a safety net, because the agent answers while the control plane is
	// unreachable. If the control plane is slow, a first use waits until the timeout of its client or its route.
	relayedFirstUseTimeout = 5 * time.Minute
	// relayedEndpointsTimeout is shorter, because Envoy subscribes to no other cluster while a cluster waits for
	// its endpoints.
	relayedEndpointsTimeout = 15 * time.Second
)

// FirstUse returns how long a proxy waits for the control plane when it uses a service for the first time. The
// argument is the timeout of proxies whose agent does not answer for an unreachable control plane.
func (f Features) FirstUse(timeout time.Duration) time.Duration {
	if f.Relayed {
		return relayedFirstUseTimeout
	}
	return timeout
}

// EndpointsTimeout returns how long a cluster waits for its endpoints. It is short, because meanwhile
// Envoy subscribes to no other cluster.
func (f Features) EndpointsTimeout(timeout time.Duration) time.Duration {
	if f.Relayed {
		return relayedEndpointsTimeout
	}
	return timeout
}
