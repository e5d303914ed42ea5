package resource

import (
	"fmt"
	"path"
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/clusters"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/mtls"
	"outrider.dev/internal/core/xds/names"
)

// Notes returns the policies that are not enforced for p, the features that it lacks because of its
// node's metadata, why targets of a gRPC client are not found, and why calls to services fail that have no
// endpoint on its node.
func (v *snapshot) Notes(p *xds.Proxy, listeners, endpoints []string) []string {
	var out []string
	if w := features.Workload(v.mesh, p); w != nil {
		for _, s := range v.mesh.Unenforced(w) {
			out = append(out, s.Severity()+s.Key().String()+": "+s.Message())
		}
	}
	switch {
	case p.GRPC:
		out = append(out, "gRPC client: it calls in plain text, and ports that require mutual TLS refuse it (docs/interop.md)")
	case !mtls.SecretsOf(p).Configured():
		out = append(out, fmt.Sprintf("it calls and is called in plain text, and its ports that require mutual TLS refuse everything: its node has no metadata %s or %s (docs/interop.md)",
			contract.MetadataSecrets, contract.MetadataCertificates))
	}
	for _, key := range []string{contract.MetadataServerCert, contract.MetadataClientCert} {
		if file := p.Metadata[key]; p.IstioAgent() && file != "" && path.Join("/", path.Dir(file)) != istioCertificates {
			out = append(out, fmt.Sprintf("its node has %s=%q, which is not followed: its listeners and clusters wait for certificates in %s (docs/interop.md)", key, file, istioCertificates))
		}
	}
	if istioDNS(p) {
		out = append(out, "its agent captures DNS, and knows no name of the mesh: all queries go on to the pod's resolver; names of the mesh are resolved by outrider-agent only (docs/interop.md)")
	}
	for _, name := range listeners {
		if _, unknown := v.grpcTarget(p, name); unknown != "" {
			out = append(out, fmt.Sprintf("xds:///%s: %s", name, unknown))
		}
	}
	for _, name := range endpoints {
		if r, ok := names.ParseService(name); ok {
			out = append(out, v.noneOnNode(p, r)...)
		}
	}
	return out
}

// noneOnNode returns a note if a service has internalTrafficPolicy: Local, and no endpoint that p may use.
func (v *snapshot) noneOnNode(p *xds.Proxy, r names.Reference) []string {
	t, ok := v.target(r, p.Namespace)
	if !ok || t.Service.Traffic != mesh.OnlyNode || t.Service.External != "" {
		return nil
	}
	at := v.placeOf(p)
	switch {
	case at.Node == "":
		return []string{contract.WarningPrefix + fmt.Sprintf("calls to %s, port %d, fail: the service has internalTrafficPolicy: Local, and the proxy's pod, or its node, is not known", r.Host, r.Port)}
	case len(clusters.EndpointsFor(t, at)[0]) == 0:
		return []string{contract.WarningPrefix + fmt.Sprintf("calls to %s, port %d, fail: the service has internalTrafficPolicy: Local, and no ready endpoint on the node %s%s", r.Host, r.Port, at.Node, ofNoNode(t))}
	}
	return nil
}

// ofNoNode returns an addition to a note if an endpoint is on no node, as when its EndpointSlice was written by hand.
func ofNoNode(t names.Target) string {
	if slices.ContainsFunc(t.Service.Endpoints, func(e mesh.Endpoint) bool { return e.PortName == t.Port.Name && e.Node == "" }) {
		return "; an endpoint is on no node, as its EndpointSlice has no nodeName for it"
	}
	return ""
}
