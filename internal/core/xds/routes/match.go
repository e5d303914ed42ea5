package routes

import (
	"regexp"
	"strings"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/message"
)

type substitution = matcher.RegexMatchAndSubstitute

func substitute(pattern, with string) *matcher.RegexMatchAndSubstitute {
	return &matcher.RegexMatchAndSubstitute{
		Pattern:      &matcher.RegexMatcher{Regex: pattern},
		Substitution: strings.ReplaceAll(with, `\`, `\\`),
	}
}

func match(m mesh.Match) *route.RouteMatch {
	out := message.Anything()
	if m.Path != nil {
		pathMatch(out, *m.Path)
	}
	if m.Call != nil {
		callMatch(out, *m.Call)
	}
	if m.Method != "" {
		out.Headers = append(out.Headers, headerMatch(mesh.Pair{Name: ":method", Text: mesh.Text{Kind: mesh.Exact, Value: m.Method}}))
	}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, headerMatch(h))
	}
	for _, q := range m.Query {
		out.QueryParameters = append(out.QueryParameters, &route.QueryParameterMatcher{
			Name:                         q.Name,
			QueryParameterMatchSpecifier: &route.QueryParameterMatcher_StringMatch{StringMatch: text(q.Text)},
		})
	}
	return out
}

func pathMatch(out *route.RouteMatch, t mesh.Text) {
	switch t.Kind {
	case mesh.Exact:
		out.PathSpecifier = &route.RouteMatch_Path{Path: t.Value}
	case mesh.RegExp:
		out.PathSpecifier = &route.RouteMatch_SafeRegex{SafeRegex: &matcher.RegexMatcher{Regex: t.Value}}
	case mesh.Prefix:
		// "/a" and "/a/" both match "/a" and all paths below it, but not "/ab".
		if p := strings.TrimRight(t.Value, "/"); p != "" {
			out.PathSpecifier = &route.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: p}
		}
	}
}

// callMatch matches the path of a call, /package.Service/Method.
func callMatch(out *route.RouteMatch, c mesh.Call) {
	const anyName = "[^/]+"
	expression := func(text string) string {
		switch {
		case text == "":
			return anyName
		case c.Kind == mesh.RegExp:
			return "(?:" + text + ")"
		}
		return regexp.QuoteMeta(text)
	}
	switch {
	case c.Kind == mesh.Exact && c.Service != "" && c.Method != "":
		out.PathSpecifier = &route.RouteMatch_Path{Path: "/" + c.Service + "/" + c.Method}
	case c.Kind == mesh.Exact && c.Service != "":
		out.PathSpecifier = &route.RouteMatch_Prefix{Prefix: "/" + c.Service + "/"}
	default:
		out.PathSpecifier = &route.RouteMatch_SafeRegex{SafeRegex: &matcher.RegexMatcher{Regex: "/" + expression(c.Service) + "/" + expression(c.Method)}}
	}
}

func headerMatch(p mesh.Pair) *route.HeaderMatcher {
	return message.HeaderMatch(p.Name, text(p.Text))
}

func text(t mesh.Text) *matcher.StringMatcher {
	switch t.Kind {
	case mesh.Prefix:
		return message.Prefixed(t.Value)
	case mesh.RegExp:
		return message.Regex(t.Value)
	}
	return message.Exactly(t.Value)
}
