package objects

import (
	"regexp"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"outrider.dev/internal/core/mesh"
)

// GRPCRoute returns the part for r; nil if none of its parents is a Service. If there is an error, the part
// contains everything else in the object.
func GRPCRoute(r *gatewayv1.GRPCRoute) (*mesh.RouteSpec, error) {
	out, err := route(&r.ObjectMeta, r.Spec.ParentRefs, r.Spec.Rules, (*routeReader).grpcRule)
	if out != nil {
		out.GRPC = true
	}
	return out, err
}

func (c *routeReader) grpcRule(field string, r *gatewayv1.GRPCRouteRule) mesh.Route {
	out := mesh.Route{Name: c.ruleName(field, r.Name)}
	for i := range r.Matches {
		out.Matches = append(out.Matches, c.grpcMatch(at(field+".matches", i), &r.Matches[i]))
	}
	out.Filters = c.grpcFilters(field+".filters", r.Filters)
	for i, b := range r.BackendRefs {
		at := at(field+".backendRefs", i)
		to := c.share(at, &b.BackendRef)
		to.Filters = c.grpcFilters(at+".filters", b.Filters)
		out.Backends = append(out.Backends, to)
	}
	if r.SessionPersistence != nil {
		c.invalid(field+".sessionPersistence", "is not supported")
	}
	return out
}

// grpcFilters converts the filters of a GRPCRoute. Their types also exist in HTTPRoutes, in the same form.
func (c *routeReader) grpcFilters(field string, filters []gatewayv1.GRPCRouteFilter) []mesh.Filter {
	var same []gatewayv1.HTTPRouteFilter
	for i, f := range filters {
		switch f.Type {
		case gatewayv1.GRPCRouteFilterRequestHeaderModifier, gatewayv1.GRPCRouteFilterResponseHeaderModifier, gatewayv1.GRPCRouteFilterRequestMirror:
		default:
			c.invalid(at(field, i)+".type", "%q is not supported: must be RequestHeaderModifier, ResponseHeaderModifier or RequestMirror", f.Type)
			return nil // otherwise indexes in later messages would refer to a shorter list
		}
		same = append(same, gatewayv1.HTTPRouteFilter{
			Type:                  gatewayv1.HTTPRouteFilterType(f.Type),
			RequestHeaderModifier: f.RequestHeaderModifier, ResponseHeaderModifier: f.ResponseHeaderModifier, RequestMirror: f.RequestMirror,
		})
	}
	return c.filters(field, same)
}

var callKinds = map[gatewayv1.GRPCMethodMatchType]mesh.TextKind{
	gatewayv1.GRPCMethodMatchExact: mesh.Exact, gatewayv1.GRPCMethodMatchRegularExpression: mesh.RegExp,
}

// grpcServices and grpcMethods match the names that the Gateway API allows for exact matches.
var (
	grpcServices = regexp.MustCompile(`^\.?[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*)*$`)
	grpcMethods  = regexp.MustCompile(`^[A-Za-z_][A-Za-z_0-9]*$`)
)

func (c *routeReader) grpcMatch(field string, m *gatewayv1.GRPCRouteMatch) mesh.Match {
	var out mesh.Match
	if m.Method != nil {
		out.Call = c.call(field+".method", m.Method)
	}
	for i, h := range m.Headers {
		out.Headers = first(out.Headers, c.header(at(field+".headers", i), string(h.Name), h.Value, gatewayv1.HeaderMatchType(ptr.Deref(h.Type, gatewayv1.GRPCHeaderMatchExact))))
	}
	return out
}

func (c *routeReader) call(field string, m *gatewayv1.GRPCMethodMatch) *mesh.Call {
	kind := oneOf(&c.check, field+".type", ptr.Deref(m.Type, gatewayv1.GRPCMethodMatchExact), callKinds)
	out := &mesh.Call{Kind: kind, Service: ptr.Deref(m.Service, ""), Method: ptr.Deref(m.Method, "")}
	if out.Service == "" && out.Method == "" {
		c.invalid(field, "has neither service nor method: must have one of them, or both")
		return nil
	}
	for _, part := range []struct {
		name, text string
		valid      *regexp.Regexp
	}{{"service", out.Service, grpcServices}, {"method", out.Method, grpcMethods}} {
		switch {
		case part.text == "":
		case kind == mesh.RegExp:
			c.regexp(field+"."+part.name, part.text)
		case !part.valid.MatchString(part.text):
			c.invalid(field+"."+part.name, "%q is not a name of gRPC: must be letters, digits and _%s", part.text, map[string]string{"service": ", in parts with . between"}[part.name])
		}
	}
	return out
}
