package dns

import (
	"strings"

	"outrider.dev/internal/wire"
)

// candidates are the names to query the control plane for, in order, when an app's resolver
// queries a name: none if it cannot be of the mesh.
//
// A resolver completes reviews.shop by its search list, and begins with a name that is
// not there: reviews.shop.web.svc.cluster.local. What it would query after that is
// queried here at once, and it gets an alias: one round for what are four. What lies
// outside of the mesh's domain is never skipped over: it might be there.
func candidates(name, domain string, search []string) []string {
	services := ".svc." + domain
	if name == "" {
		return nil
	}
	if !strings.Contains(name, ".") || strings.HasSuffix(name, ".svc") {
		return []string{name} // completed by the control plane, which knows our namespace
	}
	var out []string
	add := func(name string) {
		if strings.HasSuffix(name, services) && len(name) <= wire.MaxName && len(out) < wire.MaxNames {
			out = append(out, name)
		}
	}
	add(name)
	base, at := unsearched(name, search)
	if at < 0 {
		return out
	}
	for i := at; i < len(search); i++ {
		next := base + "." + search[i]
		if !strings.HasSuffix(next, "."+domain) {
			break
		}
		if i > at {
			add(next)
		}
	}
	add(base)
	return out
}

// unsearched takes off the first search domain that a name ends in.
func unsearched(name string, search []string) (base string, at int) {
	for i, domain := range search {
		if base, ok := strings.CutSuffix(name, "."+domain); ok && base != "" {
			return base, i
		}
	}
	return name, -1
}

// isLocal says whether a name is this machine's in every place (RFC 6761, section 6.3).
func isLocal(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
