// Package routes makes virtual hosts. A virtual host determines to which clusters the requests to a service's
// port go, by the service's routes and faults and by what the client's namespace may see.
package routes

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/retry"
)

const (
	// OriginalHost preserves the client's authority while the request is in the internal listener. On
	// the way there Envoy carries it in a header, which must not reach the application.
	OriginalHost = "outrider.host"
	HostHeader   = "x-envoy-original-host"
)

// A Policy determines the routing of requests from clients in one namespace to a service's port.
type Policy struct {
	Service  *mesh.Service
	Port     *mesh.Port
	Routes   []mesh.Route
	Visible  func(b mesh.Backend) *mesh.Service // the backend's service, if the client can see it
	Internal bool                               // for the internal listener
	Family   names.Family                       // of the original destination; primary if unknown
}

// targetOf returns a service's port with the family of the original destination.
func (p *Policy) targetOf(s *mesh.Service, port *mesh.Port) names.Target {
	t := names.Target{Service: s, Port: port}
	if p.Family == names.Primary {
		return t
	}
	return t.WithFamily(p.Family)
}

// VirtualHost applies the service's routes; the first match is used. Without routes all requests go to
// the service; with routes, a request that none matches gets 404.
func (p *Policy) VirtualHost(name string, domains ...string) *route.VirtualHost {
	v := &route.VirtualHost{Name: name, Domains: domains, ResponseHeadersToRemove: retry.Private()}
	if p.Internal {
		v.RequestHeadersToRemove = []string{HostHeader}
	}
	if len(p.Routes) == 0 {
		r := &route.Route{Match: message.Anything()}
		p.forward(r, &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: p.targetOf(p.Service, p.Port).Name()}, RetryPolicy: retry.Default()})
		r.TypedPerFilterConfig = faultsOf(p.targetOf(p.Service, p.Port))
		v.Routes = []*route.Route{r}
	}
	for _, r := range p.Routes {
		var m mesh.Match // matches everything
		if len(r.Matches) > 0 {
			m = r.Matches[0]
		}
		v.Routes = append(v.Routes, p.rule(r, m)...)
	}
	if p.Internal {
		v.Routes = retry.Routes(v.Routes...)
	}
	return v
}

// Clusters returns the targets to which requests may be sent, sorted.
func (p *Policy) Clusters() []names.Target {
	out := []names.Target{}
	if len(p.Routes) == 0 {
		return []names.Target{p.targetOf(p.Service, p.Port)}
	}
	add := func(b *mesh.Backend) {
		if t, ok := p.target(*b); ok {
			out = append(out, t)
		}
	}
	for i := range p.Routes {
		p.Routes[i].EachBackend(add)
	}
	slices.SortFunc(out, func(a, b names.Target) int { return strings.Compare(a.Name(), b.Name()) })
	return slices.Compact(out)
}

func (p *Policy) target(b mesh.Backend) (names.Target, bool) {
	s := p.Visible(b)
	if s == nil {
		return names.Target{}, false
	}
	port := s.Port(b.Port)
	return p.targetOf(s, port), port != nil
}

// rule converts one match of a route to Envoy's routes. The share of missing backends gets a separate route, with
// an error. If a backend has filters that Envoy supports only for a whole route, each backend gets a route of its
// own.
func (p *Policy) rule(r mesh.Route, m mesh.Match) []*route.Route {
	if slices.ContainsFunc(r.Backends, func(b mesh.Backend) bool { return slices.ContainsFunc(b.Filters, ofWholeRoute) }) {
		return p.routePerBackend(r, m)
	}
	out := &route.Route{Name: r.Name, Match: p.match(r, m)}
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
	clusters, existing, all := p.weighted(r.Backends)
	if existing == 0 {
		out.Action = p.noBackend(r)
		return []*route.Route{out}
	}
	action := &route.RouteAction{Timeout: durationpb.New(r.Timeout), RetryPolicy: retries(r)}
	if len(clusters) == 1 && clusters[0].RequestHeadersToAdd == nil && clusters[0].RequestHeadersToRemove == nil &&
		clusters[0].ResponseHeadersToAdd == nil && clusters[0].ResponseHeadersToRemove == nil {
		action.ClusterSpecifier = &route.RouteAction_Cluster{Cluster: clusters[0].Name}
		out.TypedPerFilterConfig = clusters[0].TypedPerFilterConfig
	} else {
		action.ClusterSpecifier = &route.RouteAction_WeightedClusters{WeightedClusters: &route.WeightedCluster{Clusters: clusters}}
	}
	p.forward(out, action)
	for _, f := range r.Filters {
		p.applyFilter(action, f, m)
	}
	if existing == all {
		return []*route.Route{out}
	}
	missing := &route.Route{Name: r.Name + "/missing", Match: p.match(r, m), Action: p.noBackend(r)}
	missing.Match.RuntimeFraction = millionths(uint32((all - existing) * 1_000_000 / all))
	return []*route.Route{missing, out}
}

// match returns Envoy's form of a match. In the internal listener, a match of the header host becomes one of
// [HostHeader], which carries the client's authority.
func (p *Policy) match(r mesh.Route, m mesh.Match) *route.RouteMatch {
	if isHost := func(h mesh.Pair) bool { return h.Name == "host" }; p.Internal && slices.ContainsFunc(m.Headers, isHost) {
		m.Headers = slices.Clone(m.Headers)
		m.Headers[slices.IndexFunc(m.Headers, isHost)].Name = HostHeader
	}
	out := match(m)
	if r.GRPC {
		out.Grpc = &route.RouteMatch_GrpcRouteMatchOptions{}
	}
	return out
}

// ofWholeRoute reports whether Envoy supports f only for a whole route, not for a weighted cluster.
func ofWholeRoute(f mesh.Filter) bool { return f.Mirror != nil || f.Rewrite != nil }

// routePerBackend gives each backend a route; the last one gets the remaining requests. Envoy compares
// the fractions of a request's routes with one random number, so each fraction is the sum of the shares
// up to and including its own.
func (p *Policy) routePerBackend(r mesh.Route, m mesh.Match) []*route.Route {
	var all, sum uint64
	for _, b := range r.Backends {
		all += uint64(b.Weight)
	}
	var out []*route.Route
	for i, b := range r.Backends {
		if b.Weight == 0 && all > 0 {
			continue
		}
		one := r
		one.Name += "/" + strconv.Itoa(i)
		one.Filters = slices.Concat(r.Filters, slices.DeleteFunc(slices.Clone(b.Filters), func(f mesh.Filter) bool { return !ofWholeRoute(f) }))
		b.Filters = slices.DeleteFunc(slices.Clone(b.Filters), ofWholeRoute)
		one.Backends = []mesh.Backend{b}
		list := p.rule(one, m) // one route, whether the backend exists or not
		if sum += uint64(b.Weight); sum < all {
			list[0].Match.RuntimeFraction = millionths(uint32(sum * 1_000_000 / all))
		}
		out = append(out, list...)
		if sum == all {
			break
		}
	}
	return out
}

// millionths returns Envoy's form of a share of the requests, given in millionths.
func millionths(n uint32) *core.RuntimeFractionalPercent {
	return &core.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: n, Denominator: typev3.FractionalPercent_MILLION}}
}

// noBackend answers requests for missing backends, with the status that the Gateway API requires; a
// gRPC client gets 503 as UNAVAILABLE.
func (p *Policy) noBackend(r mesh.Route) *route.Route_DirectResponse {
	direction := "outbound"
	if p.Internal {
		direction = names.Internal
	}
	status := uint32(http.StatusInternalServerError)
	if r.GRPC {
		status = http.StatusServiceUnavailable
	}
	return &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{
		Status: status, Body: message.Inline("outrider (" + direction + "): " + p.missing(r) + "\n"),
	}}
}

// missing describes the first backend of a route that does not exist for the client, by the name in the
// route.
func (p *Policy) missing(r mesh.Route) string {
	for _, b := range r.Backends {
		if _, ok := p.target(b); !ok && b.Weight > 0 {
			return fmt.Sprintf("the backend %s/%s:%d of the route %s does not exist, needs a ReferenceGrant, or is not visible to this client's namespace", b.Namespace, b.Name, b.Port, r.Name)
		}
	}
	return "the route " + r.Name + " has no backend with a weight"
}

// forward sets the action of r, without an idle timeout. In the internal listener it restores the
// client's authority.
func (p *Policy) forward(r *route.Route, a *route.RouteAction) {
	a.IdleTimeout = durationpb.New(0)
	if a.Timeout == nil {
		a.Timeout = durationpb.New(0)
	}
	if p.Internal {
		a.HostRewriteSpecifier = &route.RouteAction_HostRewrite{HostRewrite: "%FILTER_STATE(" + OriginalHost + ":PLAIN)%"}
	}
	r.Action = &route.Route_Route{Route: a}
}

// weighted returns the clusters of existing backends, the sum of their weights, and the sum of all
// weights.
func (p *Policy) weighted(backends []mesh.Backend) (out []*route.WeightedCluster_ClusterWeight, existing, all uint64) {
	for _, b := range backends {
		all += uint64(b.Weight)
		t, ok := p.target(b)
		if !ok || b.Weight == 0 {
			continue
		}
		existing += uint64(b.Weight)
		c := &route.WeightedCluster_ClusterWeight{Name: t.Name(), Weight: wrapperspb.UInt32(b.Weight), TypedPerFilterConfig: faultsOf(t)}
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
	return out, existing, all
}

// applyFilter applies a filter to forwarded requests.
func (p *Policy) applyFilter(a *route.RouteAction, f mesh.Filter, m mesh.Match) {
	if f.Mirror != nil {
		if t, ok := p.target(*f.Mirror); ok {
			a.RequestMirrorPolicies = append(a.RequestMirrorPolicies, &route.RouteAction_RequestMirrorPolicy{
				Cluster: t.Name(), DisableShadowHostSuffixAppend: true, RuntimeFraction: millionths(uint32(f.MirrorPercent * 10_000)),
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

// redirects maps the statuses of redirects to Envoy's codes.
var redirects = map[int]route.RedirectAction_RedirectResponseCode{
	http.StatusMovedPermanently:  route.RedirectAction_MOVED_PERMANENTLY,
	http.StatusFound:             route.RedirectAction_FOUND,
	http.StatusSeeOther:          route.RedirectAction_SEE_OTHER,
	http.StatusTemporaryRedirect: route.RedirectAction_TEMPORARY_REDIRECT,
	http.StatusPermanentRedirect: route.RedirectAction_PERMANENT_REDIRECT,
}

// wellKnown are the default ports of schemes, which an address may omit.
var wellKnown = map[string]uint16{"http": 80, "https": 443}

// redirect converts a redirect. In the internal listener the client's authority is not available, so a redirect
// that keeps the host uses the service's host.
func (p *Policy) redirect(r *mesh.Redirect, m mesh.Match) *route.RedirectAction {
	out := &route.RedirectAction{HostRedirect: r.Host, PortRedirect: uint32(p.redirectPort(r)), ResponseCode: redirects[cmp.Or(r.Status, http.StatusFound)]}
	if p.Internal && r.Host == "" {
		out.HostRedirect = p.Service.Host
	}
	if r.Scheme != "" {
		out.SchemeRewriteSpecifier = &route.RedirectAction_SchemeRedirect{SchemeRedirect: r.Scheme}
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

// redirectPort returns the port in a redirect, 0 for none: the filter's port, or the port of its scheme, or the
// service's port, to which the request was sent (Gateway API, HTTPRequestRedirectFilter.port).
func (p *Policy) redirectPort(r *mesh.Redirect) uint16 {
	port := cmp.Or(r.Port, wellKnown[r.Scheme], p.Port.Number)
	if port != wellKnown[cmp.Or(r.Scheme, "http")] {
		return port
	}
	// If Envoy keeps the host, it also keeps the port, except for 80 if the scheme becomes https.
	if r.Host != "" || p.Internal || p.Port.Number == wellKnown["http"] {
		return 0
	}
	return port
}

// retries returns the retries of the route, or by default those that are always safe.
func retries(r mesh.Route) *route.RetryPolicy {
	out := retry.Default()
	if r.Retry != nil {
		// The Gateway API requires retries also after a reset connection and after an attempt that timed out.
		out.RetryOn += ",reset"
		out.NumRetries = wrapperspb.UInt32(uint32(max(r.Retry.Attempts, 0)))
		for _, code := range r.Retry.Codes {
			out.RetriableStatusCodes = append(out.RetriableStatusCodes, uint32(code))
		}
		if out.RetriableStatusCodes != nil {
			out.RetryOn += ",retriable-status-codes"
		}
		if r.Retry.Backoff > 0 {
			out.RetryBackOff = &route.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(r.Retry.Backoff), MaxInterval: durationpb.New(10 * r.Retry.Backoff)}
		}
	}
	if r.BackendTimeout > 0 {
		out.PerTryTimeout = durationpb.New(r.BackendTimeout)
	}
	return out
}

// headers converts changes of headers. It leaves out changes of the host and of pseudo-headers, because Envoy
// rejects a whole resource that contains one. It escapes %, which begins a variable in Envoy.
func headers(h *mesh.Headers) (add []*core.HeaderValueOption, remove []string) {
	for _, list := range []struct {
		pairs [][2]string
		how   core.HeaderValueOption_HeaderAppendAction
	}{{h.Set, core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}, {h.Add, core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD}} {
		for _, p := range list.pairs {
			if changeable(p[0]) {
				add = append(add, message.Header(p[0], strings.ReplaceAll(p[1], "%", "%%"), list.how))
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

// rewrite changes a whole path, or the prefix that m matched. Envoy replaces a prefix literally:
// without the regular expression, "/a/x" would become "//x" if "/a" is replaced by "/".
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

// Key distinguishes the policies for one service and port: clients with the same key share resources.
func (p *Policy) Key() string {
	var b strings.Builder
	for _, r := range p.Routes {
		b.WriteString(r.Name)
		for _, n := range r.Namespaces {
			b.WriteString(" " + n)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	for _, t := range p.Clusters() {
		b.WriteString(t.Name() + faultsKey(t) + "\n")
	}
	h := fnv.New128a()
	h.Write([]byte(b.String()))
	return string(h.Sum(nil))
}
