// Package rbac converts AuthorizationPolicies to Envoy's RBAC filters. It promises that a rule that Envoy cannot
// evaluate never allows anything, for example a rule for paths on connections that are not HTTP, and that
// policies that are too large for Envoy deny everything.
package rbac

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbac "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	requests "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	bytes "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/message"
)

// A Guard is the authorization of a workload, for the filters in its inbound chains. The zero value
// allows everything.
type Guard struct {
	*mesh.Authorization
	TrustDomain string
}

// Key distinguishes the guards within a trust domain.
func (g Guard) Key() string {
	if g.Authorization == nil {
		return ""
	}
	return g.Authorization.Key
}

// Bytes returns the filters of a chain for bytes. Envoy evaluates the policies when the first byte of a
// connection arrives, and closes a connection that they deny.
func (g Guard) Bytes() []*listener.Filter {
	var out []*listener.Filter
	for _, rules := range g.rules(true) {
		out = append(out, message.NetworkFilter("envoy.filters.network.rbac", &bytes.RBAC{StatPrefix: "inbound.", Rules: rules}))
	}
	return out
}

// Requests adds the filters of a chain for requests, which answer denied requests with 403, and the normalisation
// of paths that they need.
func (g Guard) Requests(m *hcm.HttpConnectionManager) {
	var filters []*hcm.HttpFilter
	for _, rules := range g.rules(false) {
		filters = append(filters, message.HTTPFilter("envoy.filters.http.rbac", &requests.RBAC{Rules: rules}))
	}
	m.HttpFilters = append(filters, m.HttpFilters...)
	if g.hasPaths() {
		// As with BASE, Istio's default, other spellings of a path (/x/../admin, /%61dmin) cannot evade a policy.
		// The application gets the normalised path, to which the policies were applied.
		m.NormalizePath = wrapperspb.Bool(true)
	}
}

func (g Guard) hasPaths() bool {
	if g.Authorization == nil {
		return false
	}
	isPath := func(c mesh.Condition) bool { return c.Of == mesh.Path }
	for _, p := range g.Policies {
		for _, r := range p.Rules {
			if slices.ContainsFunc(slices.Concat(r.To...), isPath) {
				return true
			}
		}
	}
	return false
}

// rules returns the rules of the filters: first those that deny, then those that allow.
func (g Guard) rules(ofBytes bool) []*rbac.RBAC {
	switch {
	case g.Authorization == nil:
		return nil
	case g.TooLarge:
		return []*rbac.RBAC{{Action: rbac.RBAC_ALLOW}} // allows nothing
	}
	deny, allow := &rbac.RBAC{Action: rbac.RBAC_DENY, Policies: map[string]*rbac.Policy{}}, &rbac.RBAC{Action: rbac.RBAC_ALLOW, Policies: map[string]*rbac.Policy{}}
	var out []*rbac.RBAC
	for _, p := range g.Policies {
		to := allow
		if p.Deny {
			to = deny
		}
		if !slices.Contains(out, to) {
			out = append(out, to)
		}
		for i := range p.Rules {
			if policy := g.policy(p, &p.Rules[i], ofBytes); policy != nil {
				to.Policies[fmt.Sprintf("ns[%s]-policy[%s]-rule[%d]", p.Namespace, p.Name, i)] = policy // as in Istio
			}
		}
	}
	slices.SortFunc(out, func(a, b *rbac.RBAC) int { return int(b.Action) - int(a.Action) }) // DENY is 1, and comes first
	return out
}

// policy converts a rule; nil for one that never matches.
func (g Guard) policy(p *mesh.AuthorizationSpec, r *mesh.AuthorizationRule, ofBytes bool) *rbac.Policy {
	unjudged := func(c mesh.Condition) bool { return !c.Judged(ofBytes) }
	if !p.Deny && slices.ContainsFunc(slices.Concat(slices.Concat(r.From...), slices.Concat(r.To...), r.When), unjudged) {
		return nil
	}
	ofOperation := func(c mesh.Condition) bool {
		switch c.Of {
		case mesh.AppPortNumber, mesh.Method, mesh.Path, mesh.HostName:
			return true
		}
		return false
	}
	out := &rbac.Policy{}
	for _, list := range orOne(r.To) {
		var all []*rbac.Permission
		for _, c := range slices.Concat(list, r.When) {
			if ofOperation(c) && !unjudged(c) {
				all = append(all, permissions(c, p.Deny)...)
			}
		}
		out.Permissions = append(out.Permissions, allPermissions(all))
	}
	for _, list := range orOne(r.From) {
		var all []*rbac.Principal
		for _, c := range slices.Concat(list, r.When) {
			if !ofOperation(c) && !unjudged(c) {
				all = append(all, g.principals(c, p.Namespace)...)
			}
		}
		out.Principals = append(out.Principals, allPrincipals(all))
	}
	return out
}

// orOne replaces an empty list of lists by one empty list, which matches always.
func orOne(lists [][]mesh.Condition) [][]mesh.Condition {
	if len(lists) == 0 {
		return [][]mesh.Condition{nil}
	}
	return lists
}

// permissions converts a condition on the operation; all of the results must match. What a DENY rule has among its
// values matches wide, and what it excludes narrow; with an ALLOW rule it is the other way round.
func permissions(c mesh.Condition, deny bool) []*rbac.Permission {
	var out []*rbac.Permission
	if len(c.Values) > 0 {
		out = append(out, operation(c.Of, c.Values, deny))
	}
	if len(c.NotValues) > 0 {
		out = append(out, not(operation(c.Of, c.NotValues, !deny)))
	}
	return out
}

// principals converts a condition on the client; all of the results must match.
func (g Guard) principals(c mesh.Condition, namespace string) []*rbac.Principal {
	anyOf := func(values []string) *rbac.Principal {
		ids := &rbac.Principal_Set{}
		for _, v := range values {
			ids.Ids = append(ids.Ids, g.principal(c.Of, v, namespace))
		}
		return &rbac.Principal{Identifier: &rbac.Principal_OrIds{OrIds: ids}}
	}
	var out []*rbac.Principal
	if len(c.Values) > 0 {
		out = append(out, anyOf(c.Values))
	}
	if len(c.NotValues) > 0 {
		out = append(out, &rbac.Principal{Identifier: &rbac.Principal_NotId{NotId: anyOf(c.NotValues)}})
	}
	return out
}

// principal converts one value. A client without a certificate has no identity, so no value matches it.
func (g Guard) principal(of mesh.Attribute, v, namespace string) *rbac.Principal {
	prefix := "spiffe://" + g.TrustDomain + "/ns/"
	switch of {
	case mesh.SourceIP:
		return fromAddress(v)
	case mesh.ClientNS:
		return identified(message.Regex(regexp.QuoteMeta(prefix) + strings.ReplaceAll(regexp.QuoteMeta(v), `\*`, "[^/]*") + "/sa/[^/]+"))
	case mesh.ServiceAccount:
		if !strings.Contains(v, "/") {
			v = namespace + "/" + v
		}
		ns, account, _ := strings.Cut(v, "/")
		return identified(message.Exactly(prefix + ns + "/sa/" + account))
	}
	if rest, ok := strings.CutPrefix(v, mesh.DefaultTrustDomain+"/"); ok { // stands for the mesh's own trust domain, as in Istio
		v = g.TrustDomain + "/" + rest
	}
	switch {
	case v == "*":
		return identified(message.Prefixed("spiffe://"))
	case strings.HasPrefix(v, "*"):
		return identified(pattern(v))
	}
	return identified(pattern("spiffe://" + v))
}

// identified matches clients by the SPIFFE ID in their certificate, which every client has with mutual
// TLS. It does not use mtls_authenticated, which matches no client when a TLS session is resumed: package mtls turns
// that off, but a DENY rule must not depend on it.
func identified(id *matcher.StringMatcher) *rbac.Principal {
	return &rbac.Principal{Identifier: &rbac.Principal_Authenticated_{Authenticated: &rbac.Principal_Authenticated{PrincipalName: id}}}
}

// fromAddress matches the address of the connection, not an address in a header. It also works if an
// agent has handed the connection over.
func fromAddress(v string) *rbac.Principal {
	p, err := mesh.Block(v)
	if err != nil { // already checked
		return &rbac.Principal{Identifier: &rbac.Principal_NotId{NotId: anyone()}}
	}
	//lint:ignore SA1019 remote_ip trusts the address that the client claims (X-Forwarded-For), and direct_remote_ip is
	// the agent's address if it has handed the connection over.
	return &rbac.Principal{Identifier: &rbac.Principal_SourceIp{SourceIp: message.CIDR(p)}}
}

func anyone() *rbac.Principal { return &rbac.Principal{Identifier: &rbac.Principal_Any{Any: true}} }

func allPrincipals(all []*rbac.Principal) *rbac.Principal {
	switch len(all) {
	case 0:
		return anyone()
	case 1:
		return all[0]
	}
	return &rbac.Principal{Identifier: &rbac.Principal_AndIds{AndIds: &rbac.Principal_Set{Ids: all}}}
}

// pattern matches a text; with a * at one end, any text that begins or ends with the rest; a * alone
// matches any value that is present.
func pattern(v string) *matcher.StringMatcher {
	switch {
	case v == "*":
		return message.Regex(".+")
	case strings.HasPrefix(v, "*"):
		return &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Suffix{Suffix: v[1:]}}
	case strings.HasSuffix(v, "*"):
		return message.Prefixed(v[:len(v)-1])
	}
	return message.Exactly(v)
}
