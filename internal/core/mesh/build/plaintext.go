package build

import (
	"slices"
	"strconv"

	"outrider.dev/internal/core/mesh"
)

// requireIdentity makes mutual TLS the rule at the ports of bytes where no client is let in without it:
// so its clients have identities also where the server speaks first, and a client in plain text does
// not see what the server says. A port of requests answers 403 instead, as in Istio.
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

// deniesPlainText reports whether each connection in plain text to a port is denied if it has
// bytes, whatever its address.
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

// truth says how much is known before a connection is there.
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

// judged reports whether all conditions can be judged of bytes.
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
	return yes // a DENY rule's, which cannot be judged
}
