package objects

import (
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"outrider.dev/internal/mesh"
)

// HTTPRoute returns the part of r; nil if none of its parents is a Service. Its hostnames
// are for gateways and have no effect (GEP-1426).
func HTTPRoute(r *gatewayv1.HTTPRoute) (*mesh.RouteSpec, error) {
	var c check
	out := &mesh.RouteSpec{Created: r.CreationTimestamp.Time}
	out.Namespace, out.Name = c.meta(&r.ObjectMeta)
	for i, p := range r.Spec.ParentRefs {
		if ptr.Deref(p.Group, "") != "" || ptr.Deref(p.Kind, "") != "Service" { // the group's default is the Gateway API's own
			continue
		}
		field := at("spec.parentRefs", i)
		parent := mesh.Parent{Namespace: string(ptr.Deref(p.Namespace, gatewayv1.Namespace(out.Namespace))), Name: string(p.Name), Section: string(ptr.Deref(p.SectionName, ""))}
		c.label(field+".name", parent.Name)
		c.label(field+".namespace", parent.Namespace)
		if p.Port != nil {
			parent.Port = c.port(field+".port", int64(*p.Port))
		}
		out.Parents = append(out.Parents, parent)
	}
	if len(out.Parents) == 0 {
		return nil, c.result()
	}
	for i := range r.Spec.Rules {
		out.Rules = append(out.Rules, c.rule(at("spec.rules", i), &r.Spec.Rules[i], out.Namespace))
	}
	if len(out.Rules) == 0 { // the API server's default: one rule, for everything
		out.Rules = []mesh.Route{{}}
	}
	return out, c.result()
}

func (c *check) rule(field string, r *gatewayv1.HTTPRouteRule, namespace string) mesh.Route {
	var out mesh.Route
	for i := range r.Matches {
		out.Matches = append(out.Matches, c.match(at(field+".matches", i), &r.Matches[i]))
	}
	out.Filters = c.filters(field+".filters", r.Filters, namespace)
	for i, b := range r.BackendRefs {
		at := at(field+".backendRefs", i)
		to := c.backend(at, &b.BackendObjectReference, namespace)
		weight := ptr.Deref(b.Weight, 1)
		if weight < 0 || weight > 1_000_000 {
			c.invalid(at+".weight", "%d is not a weight: must be 0 to 1000000", weight)
		}
		to.Weight = uint32(weight)
		to.Filters = c.filters(at+".filters", b.Filters, namespace)
		out.Backends = append(out.Backends, to)
	}
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

const (
	defaultAttempts = 1   // Envoy's number of retries where a policy names none
	maxAttempts     = 100 // retries must not become a load of their own
)

func (c *check) retry(field string, r *gatewayv1.HTTPRouteRetry) *mesh.Retry {
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

// durations are GEP-2257's.
var durations = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

func (c *check) duration(field string, d *gatewayv1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	out, err := time.ParseDuration(string(*d))
	if err != nil || !durations.MatchString(string(*d)) {
		c.invalid(field, "%q is not a duration: must be whole numbers of h, m, s and ms, such as 1m30s or 250ms", *d)
		return 0
	}
	return out
}

// backend converts a reference, with the weight 1.
func (c *check) backend(field string, r *gatewayv1.BackendObjectReference, namespace string) mesh.Backend {
	out := mesh.Backend{Namespace: string(ptr.Deref(r.Namespace, gatewayv1.Namespace(namespace))), Name: string(r.Name), Weight: 1}
	if ptr.Deref(r.Group, "") != "" || ptr.Deref(r.Kind, "Service") != "Service" {
		c.invalid(field+".kind", "%s is not supported: must be Service", strings.Trim(string(ptr.Deref(r.Group, "")+"/")+string(ptr.Deref(r.Kind, "Service")), "/"))
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

var pathKinds = map[gatewayv1.PathMatchType]mesh.TextKind{
	gatewayv1.PathMatchExact: mesh.Exact, gatewayv1.PathMatchPathPrefix: mesh.Prefix, gatewayv1.PathMatchRegularExpression: mesh.RegExp,
}

var textKinds = map[gatewayv1.HeaderMatchType]mesh.TextKind{
	gatewayv1.HeaderMatchExact: mesh.Exact, gatewayv1.HeaderMatchRegularExpression: mesh.RegExp,
}

var methods = map[gatewayv1.HTTPMethod]bool{
	"GET": true, "HEAD": true, "POST": true, "PUT": true, "DELETE": true, "CONNECT": true, "OPTIONS": true, "TRACE": true, "PATCH": true,
}

func (c *check) match(field string, m *gatewayv1.HTTPRouteMatch) mesh.Match {
	var out mesh.Match
	if m.Path != nil {
		kind := oneOf(c, field+".path.type", ptr.Deref(m.Path.Type, gatewayv1.PathMatchPathPrefix), pathKinds)
		text := mesh.Text{Kind: kind, Value: ptr.Deref(m.Path.Value, "/")}
		if kind == mesh.RegExp {
			c.regexp(field+".path.value", text.Value)
		} else {
			c.path(field+".path.value", text.Value)
		}
		if text != (mesh.Text{Kind: mesh.Prefix, Value: "/"}) { // the default
			out.Path = &text
		}
	}
	for i, h := range m.Headers {
		pair := c.pair(at(field+".headers", i), string(h.Name), h.Value, ptr.Deref(h.Type, gatewayv1.HeaderMatchExact))
		pair.Name = strings.ToLower(pair.Name)
		out.Headers = append(out.Headers, pair)
	}
	for i, q := range m.QueryParams {
		out.Query = append(out.Query, c.pair(at(field+".queryParams", i), string(q.Name), q.Value, gatewayv1.HeaderMatchType(ptr.Deref(q.Type, gatewayv1.QueryParamMatchExact))))
	}
	if m.Method != nil {
		oneOf(c, field+".method", *m.Method, methods)
		out.Method = string(*m.Method)
	}
	return out
}

func (c *check) pair(field, name, text string, kind gatewayv1.HeaderMatchType) mesh.Pair {
	c.headerName(field+".name", name)
	out := mesh.Pair{Name: name, Text: mesh.Text{Kind: oneOf(c, field+".type", kind, textKinds), Value: text}}
	if out.Kind == mesh.RegExp {
		c.regexp(field+".value", text)
	}
	return out
}

func (c *check) regexp(field, expr string) {
	if _, err := regexp.Compile(expr); err != nil {
		c.invalid(field, "is not a regular expression of RE2: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
}

// paths are the characters that the Gateway API lets be matched literally.
var paths = regexp.MustCompile(`^/(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*$`)

func (c *check) path(field, path string) {
	switch lower := strings.ToLower(path); {
	case !paths.MatchString(path):
		c.invalid(field, "%q is not a path: must begin with / and have no ? or #", path)
	case strings.Contains(path, "//"), strings.Contains(path+"/", "/./"), strings.Contains(path+"/", "/../"), strings.Contains(lower, "%2f"):
		c.invalid(field, "%q is not normalised: must have no //, /., /.. or %%2f", path)
	}
}

var headerNames = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+\\-.^_`|~]{1,256}$")

func (c *check) headerName(field, name string) {
	if !headerNames.MatchString(name) {
		c.invalid(field, "%q is not a header name: must be letters, digits and !#$%%&'*+-.^_`|~", name)
	}
}

func (c *check) hostname(field, name string) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		c.invalid(field, "%q is not a host name", name)
	}
}
