package resource

import (
	"google.golang.org/protobuf/types/known/anypb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/xds"
)

// istioCertificates is the directory in which Istio's agent looks for the files of the secrets that it
// serves as default and ROOTCA.
const istioCertificates = "/etc/certs"

// noNames is an empty table of names, whose version never changes.
var noNames = &xds.Resource{Name: "names", Version: "empty", Body: &anypb.Any{TypeUrl: xds.NameTableType}}

// nameTable is for Istio's agent if it captures DNS: it becomes ready only when it has a table, and
// forwards queries for names that are not in it. A table of all names would grow with the mesh, for
// each proxy; Outrider's agent looks up each name instead.
func nameTable(p *xds.Proxy) *xds.Resource {
	if !istioDNS(p) {
		return nil
	}
	return noNames
}

func istioDNS(p *xds.Proxy) bool {
	return p.IstioAgent() && p.Metadata[contract.MetadataDNSCapture] == "true"
}
