package objects

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"outrider.dev/internal/core/mesh"
)

// filters converts filters. It leaves out those that have no effect, such as a mirror without requests.
func (c *routeReader) filters(field string, filters []gatewayv1.HTTPRouteFilter) []mesh.Filter {
	var out []mesh.Filter
	seen := map[gatewayv1.HTTPRouteFilterType]bool{}
	for i := range filters {
		if t := filters[i].Type; seen[t] && t != gatewayv1.HTTPRouteFilterRequestMirror {
			c.invalid(at(field, i)+".type", "a second %s: must be one", t)
		}
		seen[filters[i].Type] = true
		if f := c.filter(at(field, i), &filters[i]); f != (mesh.Filter{}) {
			out = append(out, f)
		}
	}
	if seen[gatewayv1.HTTPRouteFilterRequestRedirect] && seen[gatewayv1.HTTPRouteFilterURLRewrite] {
		c.invalid(field, "RequestRedirect conflicts with URLRewrite: must be one of them")
	}
	return out
}

// filter converts a filter. If the filter has no effect or is invalid, it returns the zero filter.
func (c *routeReader) filter(field string, f *gatewayv1.HTTPRouteFilter) mesh.Filter {
	missing := func(name string) mesh.Filter {
		c.invalid(field+"."+name, "missing: the filter's type is %s", f.Type)
		return mesh.Filter{}
	}
	switch f.Type {
	case gatewayv1.HTTPRouteFilterRequestHeaderModifier:
		if f.RequestHeaderModifier == nil {
			return missing("requestHeaderModifier")
		}
		return mesh.Filter{RequestHeaders: c.headers(field+".requestHeaderModifier", f.RequestHeaderModifier)}
	case gatewayv1.HTTPRouteFilterResponseHeaderModifier:
		if f.ResponseHeaderModifier == nil {
			return missing("responseHeaderModifier")
		}
		return mesh.Filter{ResponseHeaders: c.headers(field+".responseHeaderModifier", f.ResponseHeaderModifier)}
	case gatewayv1.HTTPRouteFilterRequestRedirect:
		if f.RequestRedirect == nil {
			return missing("requestRedirect")
		}
		return mesh.Filter{Redirect: c.redirect(field+".requestRedirect", f.RequestRedirect)}
	case gatewayv1.HTTPRouteFilterURLRewrite:
		if f.URLRewrite == nil {
			return missing("urlRewrite")
		}
		return mesh.Filter{Rewrite: c.rewrite(field+".urlRewrite", f.URLRewrite)}
	case gatewayv1.HTTPRouteFilterRequestMirror:
		if f.RequestMirror == nil {
			return missing("requestMirror")
		}
		return c.mirror(field+".requestMirror", f.RequestMirror)
	}
	c.invalid(field+".type", "%q is not supported: must be RequestHeaderModifier, ResponseHeaderModifier, RequestRedirect, URLRewrite or RequestMirror", f.Type)
	return mesh.Filter{}
}

func (c *routeReader) headers(field string, f *gatewayv1.HTTPHeaderFilter) *mesh.Headers {
	pairs := func(field string, headers []gatewayv1.HTTPHeader) [][2]string {
		var out [][2]string
		for i, h := range headers {
			c.headerToChange(at(field, i)+".name", string(h.Name))
			if strings.ContainsAny(h.Value, "\r\n\x00") {
				c.invalid(at(field, i)+".value", "must not have a line break")
			}
			out = append(out, [2]string{string(h.Name), h.Value})
		}
		return out
	}
	for i, name := range f.Remove {
		c.headerToChange(at(field+".remove", i), name)
	}
	return &mesh.Headers{Set: pairs(field+".set", f.Set), Add: pairs(field+".add", f.Add), Remove: f.Remove}
}

// headerToChange reports an error for Host, because that header determines where a request goes.
func (c *routeReader) headerToChange(field, name string) {
	c.headerName(field, name)
	if strings.EqualFold(name, "host") {
		c.invalid(field, "Host cannot be changed as a header: use the filter URLRewrite with hostname")
	}
}

// redirects are the statuses of redirects that the Gateway API allows.
var redirects = []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}

var schemes = map[string]bool{"": true, "http": true, "https": true}

func (c *routeReader) redirect(field string, f *gatewayv1.HTTPRequestRedirectFilter) *mesh.Redirect {
	out := &mesh.Redirect{Scheme: ptr.Deref(f.Scheme, ""), Host: string(ptr.Deref(f.Hostname, "")), Path: c.pathChange(field+".path", f.Path), Status: ptr.Deref(f.StatusCode, http.StatusFound)}
	oneOf(&c.check, field+".scheme", out.Scheme, schemes)
	if out.Host != "" {
		c.hostname(field+".hostname", out.Host)
	}
	if f.Port != nil {
		out.Port = c.port(field+".port", int64(*f.Port))
	}
	if !slices.Contains(redirects, out.Status) {
		c.invalid(field+".statusCode", "%d is not supported: must be 301, 302, 303, 307 or 308", out.Status)
	}
	return out
}

func (c *routeReader) rewrite(field string, f *gatewayv1.HTTPURLRewriteFilter) *mesh.Rewrite {
	out := &mesh.Rewrite{Host: string(ptr.Deref(f.Hostname, "")), Path: c.pathChange(field+".path", f.Path)}
	if out.Host != "" {
		c.hostname(field+".hostname", out.Host)
	}
	return out
}

func (c *routeReader) pathChange(field string, m *gatewayv1.HTTPPathModifier) *mesh.PathChange {
	switch {
	case m == nil:
	case m.Type == gatewayv1.FullPathHTTPPathModifier && m.ReplaceFullPath != nil:
		if !strings.HasPrefix(*m.ReplaceFullPath, "/") {
			c.invalid(field+".replaceFullPath", "%q is not a path: must begin with /", *m.ReplaceFullPath)
		}
		return &mesh.PathChange{Full: *m.ReplaceFullPath}
	case m.Type == gatewayv1.PrefixMatchHTTPPathModifier && m.ReplacePrefixMatch != nil:
		return &mesh.PathChange{Prefix: m.ReplacePrefixMatch}
	default:
		c.invalid(field, "must have the type ReplaceFullPath or ReplacePrefixMatch, and the field of that name")
	}
	return nil
}

func (c *routeReader) mirror(field string, f *gatewayv1.HTTPRequestMirrorFilter) mesh.Filter {
	to := c.backend(field+".backendRef", &f.BackendRef)
	out := mesh.Filter{Mirror: &to, MirrorPercent: 100}
	switch {
	case f.Percent != nil:
		out.MirrorPercent = float64(*f.Percent)
	case f.Fraction != nil:
		of := ptr.Deref(f.Fraction.Denominator, 100)
		if of < 1 {
			c.invalid(field+".fraction.denominator", "%d: must be at least 1", of)
			return mesh.Filter{}
		}
		out.MirrorPercent = 100 * float64(f.Fraction.Numerator) / float64(of)
	}
	if out.MirrorPercent < 0 || out.MirrorPercent > 100 {
		c.invalid(field, "%v%% is not a percentage: must be 0 to 100", out.MirrorPercent)
	}
	if out.MirrorPercent == 0 {
		return mesh.Filter{}
	}
	return out
}
