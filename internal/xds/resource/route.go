package resource

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"outrider.dev/internal/mesh"
)

// A policy is what a service's port does with requests, for one client's namespace.
type policy struct {
	service *mesh.Service
	port    *mesh.Port
	routes  []mesh.Route
	seen    func(b mesh.Backend) *mesh.Service // the backend's service, if the client may see it
	inside  bool                               // the requests are those of the listener inside
	family  family                             // by which the service was called, if it was by address
}

// reached is a service's port as the requests reach it: by the family that they came by.
func (p *policy) reached(s *mesh.Service, port *mesh.Port) target {
	t := target{service: s, port: port}
	if p.family == first {
		return t
	}
	return t.in(p.family)
}

// virtualHost sends requests as the service's routes say: the first that matches counts.
// Without routes all go to the service; with routes, what none of them matches gets 404.
func (p *policy) virtualHost(name string, domains ...string) *route.VirtualHost {
	v := &route.VirtualHost{Name: name, Domains: domains}
	if p.inside {
		v.RequestHeadersToRemove = []string{hostHeader}
	}
	if len(p.routes) == 0 {
		r := &route.Route{Match: anything()}
		p.forward(r, &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: p.reached(p.service, p.port).name()}, RetryPolicy: unsent()})
		v.Routes = []*route.Route{r}
		return v
	}
	for _, r := range p.routes {
		for _, m := range matches(r) {
			v.Routes = append(v.Routes, p.rule(r, m)...)
		}
	}
	return v
}

// clusters are those that requests may be sent to, sorted.
func (p *policy) clusters() []target {
	out := []target{}
	if len(p.routes) == 0 {
		return []target{p.reached(p.service, p.port)}
	}
	add := func(b mesh.Backend) {
		if t, ok := p.target(b); ok {
			out = append(out, t)
		}
	}
	for _, r := range p.routes {
		for _, b := range r.Backends {
			add(b)
		}
		for _, f := range r.Filters {
			if f.Mirror != nil {
				add(*f.Mirror)
			}
		}
	}
	slices.SortFunc(out, func(a, b target) int { return strings.Compare(a.name(), b.name()) })
	return slices.Compact(out)
}

// A target is a service's port, called by a family.
type target struct {
	service *mesh.Service
	port    *mesh.Port
	family  family
}

func (t target) name() string { return serviceName(t.service, t.port.Number, t.family) }

func (p *policy) target(b mesh.Backend) (target, bool) {
	s := p.seen(b)
	if s == nil {
		return target{}, false
	}
	port := s.Port(b.Port)
	return p.reached(s, port), port != nil && port.Protocol != mesh.UDP
}

// rule is one match of a route, as Envoy's routes. The share of the backends that do not
// exist is answered by a route of its own, with 500.
func (p *policy) rule(r mesh.Route, m mesh.Match) []*route.Route {
	out := &route.Route{Name: r.Name, Match: match(m)}
	for _, f := range r.Filters {
		if f.RequestHeaders != nil {
			out.RequestHeadersToAdd, out.RequestHeadersToRemove = headers(f.RequestHeaders)
		}
		if f.ResponseHeaders != nil {
			out.ResponseHeadersToAdd, out.ResponseHeadersToRemove = headers(f.ResponseHeaders)
		}
		if f.Redirect != nil {
			out.Action = &route.Route_Redirect{Redirect: p.redirect(f.Redirect, m)}
			return []*route.Route{out}
		}
	}
	clusters, there, all := p.weighted(r.Backends)
	if there == 0 {
		out.Action = unanswered()
		return []*route.Route{out}
	}
	action := &route.RouteAction{Timeout: lasting(r.Timeout), RetryPolicy: retries(r)}
	if len(clusters) == 1 && clusters[0].RequestHeadersToAdd == nil && clusters[0].RequestHeadersToRemove == nil &&
		clusters[0].ResponseHeadersToAdd == nil && clusters[0].ResponseHeadersToRemove == nil {
		action.ClusterSpecifier = &route.RouteAction_Cluster{Cluster: clusters[0].Name}
	} else {
		action.ClusterSpecifier = &route.RouteAction_WeightedClusters{WeightedClusters: &route.WeightedCluster{Clusters: clusters}}
	}
	p.forward(out, action)
	for _, f := range r.Filters {
		p.change(action, f, m)
	}
	if there == all {
		return []*route.Route{out}
	}
	missing := &route.Route{Name: r.Name + "/missing", Match: match(m), Action: unanswered()}
	missing.Match.RuntimeFraction = &core.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{
		Numerator:   uint32((all - there) * 1_000_000 / all),
		Denominator: typev3.FractionalPercent_MILLION,
	}}
	return []*route.Route{missing, out}
}

func unanswered() *route.Route_DirectResponse {
	return &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{Status: 500}}
}

// forward makes r send requests on. Its streams may be idle for ever, and inside they
// get back the authority that the caller wrote.
func (p *policy) forward(r *route.Route, a *route.RouteAction) {
	a.IdleTimeout = lasting(0)
	if a.Timeout == nil {
		a.Timeout = lasting(0)
	}
	if p.inside {
		a.HostRewriteSpecifier = &route.RouteAction_HostRewrite{HostRewrite: "%FILTER_STATE(" + writtenHost + ":PLAIN)%"}
	}
	r.Action = &route.Route_Route{Route: a}
}

// weighted are the clusters of the backends that there are; and the sums of the weights
// of these, and of all.
func (p *policy) weighted(backends []mesh.Backend) (out []*route.WeightedCluster_ClusterWeight, there, all uint64) {
	for _, b := range backends {
		all += uint64(b.Weight)
		t, ok := p.target(b)
		if !ok || b.Weight == 0 {
			continue
		}
		there += uint64(b.Weight)
		c := &route.WeightedCluster_ClusterWeight{Name: t.name(), Weight: number(b.Weight)}
		for _, f := range b.Filters {
			if f.RequestHeaders != nil {
				c.RequestHeadersToAdd, c.RequestHeadersToRemove = headers(f.RequestHeaders)
			}
			if f.ResponseHeaders != nil {
				c.ResponseHeadersToAdd, c.ResponseHeadersToRemove = headers(f.ResponseHeaders)
			}
		}
		out = append(out, c)
	}
	return out, there, all
}

// change is what a filter does to what is sent on.
func (p *policy) change(a *route.RouteAction, f mesh.Filter, m mesh.Match) {
	if f.Mirror != nil {
		if t, ok := p.target(*f.Mirror); ok {
			a.RequestMirrorPolicies = append(a.RequestMirrorPolicies, &route.RouteAction_RequestMirrorPolicy{
				Cluster: t.name(), DisableShadowHostSuffixAppend: true,
			})
		}
	}
	if f.Rewrite == nil {
		return
	}
	if f.Rewrite.Host != "" {
		a.HostRewriteSpecifier = &route.RouteAction_HostRewriteLiteral{HostRewriteLiteral: f.Rewrite.Host}
	}
	if change := f.Rewrite.Path; change != nil {
		a.PrefixRewrite, a.RegexRewrite = rewrite(change, m)
	}
}

// redirect answers with another place. Inside, the caller's authority is not the
// request's any longer, so a redirect that keeps the host names the service itself.
func (p *policy) redirect(r *mesh.Redirect, m mesh.Match) *route.RedirectAction {
	out := &route.RedirectAction{HostRedirect: r.Host, PortRedirect: uint32(r.Port), ResponseCode: route.RedirectAction_FOUND}
	if r.Status == 301 {
		out.ResponseCode = route.RedirectAction_MOVED_PERMANENTLY
	}
	if r.Scheme != "" {
		out.SchemeRewriteSpecifier = &route.RedirectAction_SchemeRedirect{SchemeRedirect: r.Scheme}
	}
	if p.inside && r.Host == "" {
		out.HostRedirect = p.service.Host
		if r.Port == 0 && r.Scheme == "" && p.port.Number != 80 {
			out.PortRedirect = uint32(p.port.Number)
		}
	}
	if r.Path == nil {
		return out
	}
	if r.Path.Prefix == nil {
		out.PathRewriteSpecifier = &route.RedirectAction_PathRedirect{PathRedirect: r.Path.Full}
		return out
	}
	if prefix, expression := rewrite(r.Path, m); expression != nil {
		out.PathRewriteSpecifier = &route.RedirectAction_RegexRewrite{RegexRewrite: expression}
	} else {
		out.PathRewriteSpecifier = &route.RedirectAction_PrefixRewrite{PrefixRewrite: prefix}
	}
	return out
}

// retries are those of the route, or the ones that are always safe.
func retries(r mesh.Route) *route.RetryPolicy {
	out := unsent()
	if r.Retry != nil {
		out.NumRetries = number(uint32(max(r.Retry.Attempts, 0)))
		for _, code := range r.Retry.Codes {
			out.RetriableStatusCodes = append(out.RetriableStatusCodes, uint32(code))
		}
		if out.RetriableStatusCodes != nil {
			out.RetryOn += ",retriable-status-codes"
		}
		if r.Retry.Backoff > 0 {
			out.RetryBackOff = &route.RetryPolicy_RetryBackOff{BaseInterval: lasting(r.Retry.Backoff), MaxInterval: lasting(10 * r.Retry.Backoff)}
		}
	}
	if r.BackendTimeout > 0 {
		out.PerTryTimeout = lasting(r.BackendTimeout)
	}
	return out
}

// headers are changes of headers. Envoy takes neither the host nor a pseudo-header, and
// rejects all that is with them: they stay as they are. A % begins a variable there.
func headers(h *mesh.Headers) (add []*core.HeaderValueOption, remove []string) {
	for _, list := range []struct {
		pairs [][2]string
		how   core.HeaderValueOption_HeaderAppendAction
	}{{h.Set, core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}, {h.Add, core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD}} {
		for _, p := range list.pairs {
			if changeable(p[0]) {
				add = append(add, header(p[0], strings.ReplaceAll(p[1], "%", "%%"), list.how))
			}
		}
	}
	for _, name := range h.Remove {
		if changeable(name) {
			remove = append(remove, name)
		}
	}
	return add, remove
}

func changeable(name string) bool {
	return name != "" && name[0] != ':' && !strings.EqualFold(name, "host")
}

// rewrite changes a whole path, or the prefix that m matched. Envoy replaces a prefix
// byte by byte: without the expression "/a/x" would become "//x" where "/a" becomes "/".
func rewrite(c *mesh.PathChange, m mesh.Match) (prefix string, expression *substitution) {
	if c.Prefix == nil {
		return "", substitute("^/.*$", c.Full)
	}
	matched := "/"
	if m.Path != nil && m.Path.Kind == mesh.Prefix {
		matched = cmp.Or(strings.TrimRight(m.Path.Value, "/"), "/")
	}
	to := strings.TrimRight(*c.Prefix, "/")
	switch {
	case matched == "/":
		return to + "/", nil
	case to == "":
		return "", substitute("^"+regexp.QuoteMeta(matched)+"/*", "/")
	}
	return to, nil
}
