package build

import (
	"slices"
	"strconv"

	"outrider.dev/internal/core/mesh"
)

// requireIdentity sets the ports for bytes to Strict if the policies deny all plain-text connections to them.
// So a client without mutual TLS is rejected before a server that sends first reveals anything to it. A port
// for requests answers with 403 instead, as in Istio.
func requireIdentity(a *mesh.Authorization, w *mesh.Workload) {
	if a == nil {
		return
	}
	for i, p := range w.Ports {
		if p.TLS == mesh.Permissive && !p.Protocol.IsHTTP() && deniesPlainText(a, p.Number) {
			w.Ports[i].TLS = mesh.Strict
		}
	}
}

// deniesPlainText reports whether every plain-text connection to a port for bytes is denied, whatever the
// client's address.
func deniesPlainText(a *mesh.Authorization, port uint16) bool {
	if a.TooLarge {
		return true
	}
	allows, allowed := false, no
	for _, s := range a.Policies {
		allows = allows || !s.Deny
		for _, r := range s.Rules {
			t := ruleInPlainText(&r, s.Deny, port)
			switch {
			case s.Deny && t == yes:
				return true
			case !s.Deny:
				allowed = max(allowed, t)
			}
		}
	}
	return allows && allowed == no
}

// A truth is the result of a condition, as far as it is known before there is a connection.
type truth int

const (
	no truth = iota
	maybe
	yes
)

func ruleInPlainText(r *mesh.AuthorizationRule, deny bool, port uint16) truth {
	all := func(list []mesh.Condition) truth {
		out := yes
		for _, c := range list {
			out = min(out, conditionInPlainText(c, port))
		}
		return out
	}
	anyOf := func(lists [][]mesh.Condition) truth {
		if len(lists) == 0 {
			return yes
		}
		out := no
		for _, list := range lists {
			out = max(out, all(list))
		}
		return out
	}
	if !deny && !judged(r) {
		return no
	}
	return min(anyOf(r.From), anyOf(r.To), all(r.When))
}

// judged reports whether all conditions of a rule can be evaluated on a port for bytes.
func judged(r *mesh.AuthorizationRule) bool {
	return !slices.ContainsFunc(slices.Concat(slices.Concat(r.From...), slices.Concat(r.To...), r.When), func(c mesh.Condition) bool { return !c.Judged(true) })
}

func conditionInPlainText(c mesh.Condition, port uint16) truth {
	switch c.Of {
	case mesh.Principal, mesh.ClientNS, mesh.ServiceAccount:
		if len(c.Values) > 0 {
			return no
		}
		return yes
	case mesh.SourceIP:
		return maybe
	case mesh.AppPortNumber:
		number := strconv.Itoa(int(port))
		if len(c.Values) > 0 && !slices.Contains(c.Values, number) || slices.Contains(c.NotValues, number) {
			return no
		}
		return yes
	}
	return yes // an unsupported condition or one on requests, in a DENY rule: it always matches
}
