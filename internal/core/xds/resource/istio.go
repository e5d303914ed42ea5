package resource

import (
	"google.golang.org/protobuf/types/known/anypb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/xds"
)

// istioCertificates is where Istio's agent finds the files of the secrets that it serves as
// default and ROOTCA, if there are any.
const istioCertificates = "/etc/certs"

// noNames is an empty table of names. Its version never changes.
var noNames = &xds.Resource{Name: "names", Version: "empty", Body: &anypb.Any{TypeUrl: xds.NameTableType}}

// nameTable is for Istio's agent where it captures DNS: it is not ready before it has a table,
// and sends on what it does not find there. A table of all names would grow with the mesh, for
// each proxy; our agent looks each name up.
func nameTable(p *xds.Proxy) *xds.Resource {
	if !istioDNS(p) {
		return nil
	}
	return noNames
}

func istioDNS(p *xds.Proxy) bool {
	return p.IstioAgent() && p.Metadata[contract.MetadataDNSCapture] == "true"
}
