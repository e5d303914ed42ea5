package resource

import (
	"fmt"
	"path"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/mtls"
)

// Notes returns the policies that are not enforced for p, the features that it lacks because of its
// node's metadata, and why targets of a gRPC client are not found.
func (v *snapshot) Notes(p *xds.Proxy, listeners []string) []string {
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
	return out
}
