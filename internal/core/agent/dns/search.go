package dns

import (
	"strings"

	"outrider.dev/internal/base/wire"
)

// candidates returns the names to resolve at the control plane, in order, when an application's
// resolver queries a name; none if the name cannot be in the mesh.
//
// A resolver completes reviews.shop with its search list, and begins with a name that does not exist:
// reviews.shop.web.svc.cluster.local. The proxy resolves, at once, all names that the resolver would query
// next, and responds with an alias: one round trip instead of four. A name outside of the mesh's domain ends
// the list, because it may exist.
func candidates(name, domain string, search []string) []string {
	services := ".svc." + domain
	if name == "" {
		return nil
	}
	if !strings.Contains(name, ".") || strings.HasSuffix(name, ".svc") {
		return []string{name} // the control plane completes it with our namespace
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

// unsearched removes the first search domain that is a suffix of the name, and returns its index.
func unsearched(name string, search []string) (base string, at int) {
	for i, domain := range search {
		if base, ok := strings.CutSuffix(name, "."+domain); ok && base != "" {
			return base, i
		}
	}
	return name, -1
}

// isLocal reports whether a name always means the loopback address (RFC 6761, section 6.3).
func isLocal(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
