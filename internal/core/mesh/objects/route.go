package objects

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"outrider.dev/internal/core/mesh"
)

// HTTPRoute returns the part for r; nil if none of its parents is a Service. It ignores hostnames, because
// they are for gateways (GEP-1294). If there is an error, the part contains everything else in the object.
func HTTPRoute(r *gatewayv1.HTTPRoute) (*mesh.RouteSpec, error) {
	return route(&r.ObjectMeta, r.Spec.ParentRefs, r.Spec.Rules, (*routeReader).rule)
}

type routeReader struct {
	check
	namespace string // namespace of the route
}

// route reads an HTTPRoute or a GRPCRoute. The function read converts one of the route's rules.
func route[R any](m *metav1.ObjectMeta, parents []gatewayv1.ParentReference, rules []R,
	read func(c *routeReader, field string, r *R) mesh.Route) (*mesh.RouteSpec, error) {
	var c routeReader
	out := &mesh.RouteSpec{Created: m.CreationTimestamp.Time, Generation: m.Generation}
	out.Namespace, out.Name = c.meta(m)
	c.namespace = out.Namespace
	for i, p := range parents {
		if IsService(&p) {
			out.Parents = append(out.Parents, c.parent(at("spec.parentRefs", i), &p))
		}
	}
	if len(out.Parents) == 0 {
		return nil, c.result()
	}
	for i := range rules {
		out.Rules = append(out.Rules, read(&c, at("spec.rules", i), &rules[i]))
	}
	if len(out.Rules) == 0 { // the API server's default is one rule that matches everything
		out.Rules = []mesh.Route{{}}
	}
	return out, c.result()
}

func (c *routeReader) parent(field string, p *gatewayv1.ParentReference) mesh.Parent {
	out := mesh.Parent{Namespace: string(ptr.Deref(p.Namespace, gatewayv1.Namespace(c.namespace))), Name: string(p.Name), Section: string(ptr.Deref(p.SectionName, ""))}
	c.label(field+".name", out.Name)
	c.label(field+".namespace", out.Namespace)
	if p.Port != nil {
		out.Port = c.port(field+".port", int64(*p.Port))
	}
	return out
}

// IsService reports whether a parent is a Service. In an object from the API server, a reference without
// group and kind means a Gateway, because the server fills in these defaults. In a file, only the empty group
// of a Service may be left out.
func IsService(p *gatewayv1.ParentReference) bool {
	return ptr.Deref(p.Group, "") == "" && ptr.Deref(p.Kind, "Gateway") == "Service"
}

// ruleName returns the name of a rule, and checks it, because it becomes part of names in a proxy's
// configuration and logs.
func (c *routeReader) ruleName(field string, name *gatewayv1.SectionName) string {
	if name != nil {
		c.name(field+".name", string(*name))
	}
	return string(ptr.Deref(name, ""))
}

func (c *routeReader) rule(field string, r *gatewayv1.HTTPRouteRule) mesh.Route {
	out := mesh.Route{Name: c.ruleName(field, r.Name)}
	for i := range r.Matches {
		out.Matches = append(out.Matches, c.match(at(field+".matches", i), &r.Matches[i]))
	}
	out.Filters = c.filters(field+".filters", r.Filters)
	for i, b := range r.BackendRefs {
		at := at(field+".backendRefs", i)
		to := c.share(at, &b.BackendRef)
		to.Filters = c.filters(at+".filters", b.Filters)
		if slices.ContainsFunc(to.Filters, isRedirect) {
			c.invalid(at+".filters", "RequestRedirect is not supported here: use it in the filters of the rule")
		}
		out.Backends = append(out.Backends, to)
	}
	if slices.ContainsFunc(out.Filters, isRedirect) && len(out.Backends) > 0 {
		c.invalid(field+".backendRefs", "conflict with the filter RequestRedirect, which responds instead")
	}
	c.prefixes(field, &out)
	if t := r.Timeouts; t != nil {
		out.Timeout = c.duration(field+".timeouts.request", t.Request)
		out.BackendTimeout = c.duration(field+".timeouts.backendRequest", t.BackendRequest)
		if out.Timeout > 0 && out.BackendTimeout > out.Timeout {
			c.invalid(field+".timeouts.backendRequest", "%s is longer than the timeout of the whole request, %s", *t.BackendRequest, *t.Request)
		}
	}
	out.Retry = c.retry(field+".retry", r.Retry)
	if r.SessionPersistence != nil {
		c.invalid(field+".sessionPersistence", "is not supported")
	}
	return out
}

func isRedirect(f mesh.Filter) bool { return f.Redirect != nil }

// prefixes reports an error if a filter replaces the matched prefix although the rule has other matches of
// paths.
func (c *routeReader) prefixes(field string, r *mesh.Route) {
	byPrefix := !slices.ContainsFunc(r.Matches, func(m mesh.Match) bool { return m.Path != nil && m.Path.Kind != mesh.Prefix })
	changes := func(f mesh.Filter) bool {
		return f.Redirect != nil && f.Redirect.Path != nil && f.Redirect.Path.Prefix != nil || f.Rewrite != nil && f.Rewrite.Path != nil && f.Rewrite.Path.Prefix != nil
	}
	all := slices.Clone(r.Filters)
	for _, b := range r.Backends {
		all = append(all, b.Filters...)
	}
	if !byPrefix && slices.ContainsFunc(all, changes) {
		c.invalid(field+".matches", "all paths must be of the type PathPrefix, because a filter has replacePrefixMatch")
	}
}

const (
	defaultAttempts = 1   // number of retries in Envoy if a policy sets none
	maxAttempts     = 100 // limits the load that retries cause
)

func (c *routeReader) retry(field string, r *gatewayv1.HTTPRouteRetry) *mesh.Retry {
	if r == nil {
		return nil
	}
	out := &mesh.Retry{Attempts: ptr.Deref(r.Attempts, defaultAttempts), Backoff: c.duration(field+".backoff", r.Backoff)}
	if out.Attempts < 0 || out.Attempts > maxAttempts {
		c.invalid(field+".attempts", "%d is not a number of retries: must be 0 to %d", out.Attempts, maxAttempts)
	}
	for i, code := range r.Codes {
		if code < 400 || code > 599 {
			c.invalid(at(field+".codes", i), "%d is not an error status: must be 400 to 599", code)
		}
		out.Codes = append(out.Codes, int(code))
	}
	return out
}

// backend converts a reference to a backend with the weight 1.
func (c *routeReader) backend(field string, r *gatewayv1.BackendObjectReference) mesh.Backend {
	out := mesh.Backend{Namespace: string(ptr.Deref(r.Namespace, gatewayv1.Namespace(c.namespace))), Name: string(r.Name), Weight: 1}
	if ptr.Deref(r.Group, "") != "" || ptr.Deref(r.Kind, "Service") != "Service" {
		// The backend gets its share of the requests, and these fail with an error, as the Gateway API
		// requires.
		out.Kind = strings.Trim(string(ptr.Deref(r.Group, "")+"/")+string(ptr.Deref(r.Kind, "Service")), "/")
		return out
	}
	c.label(field+".name", out.Name)
	c.label(field+".namespace", out.Namespace)
	if r.Port == nil {
		c.invalid(field+".port", "missing: a backend must have one")
	} else {
		out.Port = c.port(field+".port", int64(*r.Port))
	}
	return out
}

// share converts a reference to a backend with the weight of the reference.
func (c *routeReader) share(field string, r *gatewayv1.BackendRef) mesh.Backend {
	out := c.backend(field, &r.BackendObjectReference)
	n := ptr.Deref(r.Weight, 1)
	if n < 0 || n > 1_000_000 {
		c.invalid(field+".weight", "%d is not a weight: must be 0 to 1000000", n)
	}
	out.Weight = uint32(n)
	return out
}

var pathKinds = map[gatewayv1.PathMatchType]mesh.TextKind{
	gatewayv1.PathMatchExact: mesh.Exact, gatewayv1.PathMatchPathPrefix: mesh.Prefix, gatewayv1.PathMatchRegularExpression: mesh.RegExp,
}

var textKinds = map[gatewayv1.HeaderMatchType]mesh.TextKind{
	gatewayv1.HeaderMatchExact: mesh.Exact, gatewayv1.HeaderMatchRegularExpression: mesh.RegExp,
}

var methods = map[gatewayv1.HTTPMethod]bool{
	"GET": true, "HEAD": true, "POST": true, "PUT": true, "DELETE": true, "CONNECT": true, "OPTIONS": true, "TRACE": true, "PATCH": true,
}

func (c *routeReader) match(field string, m *gatewayv1.HTTPRouteMatch) mesh.Match {
	var out mesh.Match
	if m.Path != nil {
		kind := oneOf(&c.check, field+".path.type", ptr.Deref(m.Path.Type, gatewayv1.PathMatchPathPrefix), pathKinds)
		text := mesh.Text{Kind: kind, Value: ptr.Deref(m.Path.Value, "/")}
		if kind == mesh.RegExp {
			c.regexp(field+".path.value", text.Value)
		} else {
			c.path(field+".path.value", text.Value)
		}
		if text != (mesh.Text{Kind: mesh.Prefix, Value: "/"}) { // the prefix / is the default
			out.Path = &text
		}
	}
	for i, h := range m.Headers {
		out.Headers = first(out.Headers, c.header(at(field+".headers", i), string(h.Name), h.Value, ptr.Deref(h.Type, gatewayv1.HeaderMatchExact)))
	}
	for i, q := range m.QueryParams {
		out.Query = first(out.Query, c.pair(at(field+".queryParams", i), string(q.Name), q.Value, gatewayv1.HeaderMatchType(ptr.Deref(q.Type, gatewayv1.QueryParamMatchExact))))
	}
	if m.Method != nil {
		oneOf(&c.check, field+".method", *m.Method, methods)
		out.Method = string(*m.Method)
	}
	return out
}

// first adds a pair unless there is one with the same name: in the Gateway API only the first of them is
// used.
func first(pairs []mesh.Pair, p mesh.Pair) []mesh.Pair {
	if slices.ContainsFunc(pairs, func(has mesh.Pair) bool { return has.Name == p.Name }) {
		return pairs
	}
	return append(pairs, p)
}

// header is the same as pair, for names that are case-insensitive.
func (c *routeReader) header(field, name, text string, kind gatewayv1.HeaderMatchType) mesh.Pair {
	out := c.pair(field, name, text, kind)
	out.Name = strings.ToLower(out.Name)
	return out
}

func (c *routeReader) pair(field, name, text string, kind gatewayv1.HeaderMatchType) mesh.Pair {
	c.headerName(field+".name", name)
	out := mesh.Pair{Name: name, Text: mesh.Text{Kind: oneOf(&c.check, field+".type", kind, textKinds), Value: text}}
	if out.Kind == mesh.RegExp {
		c.regexp(field+".value", text)
	}
	return out
}

func (c *routeReader) regexp(field, expr string) {
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		c.invalid(field, "is not a regular expression of RE2: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		return
	}
	if size := programSize(parsed) + programEnds; size > maxProgramSize {
		c.invalid(field, "is a regular expression of some %d steps: must be at most %d, so repeat and alternate less in it", size, maxProgramSize)
	}
}

// maxProgramSize limits the size of regular expressions. Envoy rejects the whole resource if one expression
// has more than 32768 instructions (envoy.Options.Bootstrap), or needs more memory than RE2 allows.
const maxProgramSize = 16384

// programSize estimates the number of RE2 instructions of a compiled expression. RE2 compares bytes, so a
// class of characters beyond ASCII takes several instructions for each range. The estimate is needed because
// compiling would take milliseconds for an expression of 30 characters.
func programSize(r *syntax.Regexp) int {
	n := 1
	switch r.Op {
	case syntax.OpConcat, syntax.OpRepeat, syntax.OpLiteral: // only their contents are instructions
		n = 0
	case syntax.OpCapture: // its begin and its end
		n = 2
	case syntax.OpAlternate:
		n = len(r.Sub) - 1
	}
	for _, sub := range r.Sub {
		n += programSize(sub)
	}
	switch r.Op {
	case syntax.OpRepeat:
		n = n*max(r.Min, r.Max, 1) + max(1, r.Max-r.Min) // one choice for each copy that may be missing
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n += bytesOfAny
	case syntax.OpLiteral, syntax.OpCharClass:
		for _, c := range r.Rune {
			if r.Op == syntax.OpLiteral {
				n++
			}
			if c > unicode.MaxASCII {
				n += bytesOfRange
			}
		}
	}
	return min(n, maxProgramSize+1)
}

const (
	bytesOfAny   = 9 // all encodings of a character in UTF-8, with their continuation bytes
	bytesOfRange = 4
	programEnds  = 2 // a match and a failure
)

// paths matches the paths that the Gateway API allows as exact paths and as prefixes.
var paths = regexp.MustCompile(`^/(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*$`)

func (c *routeReader) path(field, path string) {
	switch lower := strings.ToLower(path); {
	case !paths.MatchString(path):
		c.invalid(field, "%q is not a path: must begin with / and have no ? or #", path)
	case strings.Contains(path, "//"), strings.Contains(path+"/", "/./"), strings.Contains(path+"/", "/../"), strings.Contains(lower, "%2f"):
		c.invalid(field, "%q is not normalised: must have no //, /., /.. or %%2f", path)
	}
}

var headerNames = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+\\-.^_`|~]{1,256}$")

func (c *routeReader) headerName(field, name string) {
	if !headerNames.MatchString(name) {
		c.invalid(field, "%q is not a header name: must be letters, digits and !#$%%&'*+-.^_`|~", name)
	}
}

func (c *routeReader) hostname(field, name string) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		c.invalid(field, "%q is not a host name", name)
	}
}
