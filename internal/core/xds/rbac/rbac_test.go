package rbac

import (
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbac "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	requests "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	bytes "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	template "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/xds/mtls"
	"outrider.dev/test/authorization"
	"outrider.dev/test/mutants"
)

// guardOf returns the server that the calls of authorization.Table address, and its guard.
func guardOf(trustDomain string, policies ...mesh.Part) (*mesh.Workload, Guard) {
	port := func(name string, p mesh.Protocol) mesh.PortSpec {
		return mesh.PortSpec{Port: mesh.Port{Name: name, Number: authorization.Ports[name], Protocol: p}, Target: authorization.Ports[name]}
	}
	b := build.New(mesh.Config{})
	b.Set(append(policies, &mesh.ServiceSpec{Name: "web", Namespace: "shop", Selector: map[string]string{"app": "server"},
		Ports: []mesh.PortSpec{port("http", mesh.HTTP), port("tcp", mesh.TCP), port("first", mesh.ServerFirst)}}, &mesh.WorkloadSpec{Ready: true, Workload: mesh.Workload{
		Name: "server-1", Namespace: "shop", ServiceAccount: "server", Labels: map[string]string{"app": "server"}, Proxied: true,
		Addresses: []netip.Addr{netip.MustParseAddr(authorization.Addresses["server"])},
	}})...)
	server := b.Mesh().Pod("shop", "server-1")
	return server, Guard{b.Mesh().Authorization(server, "shop"), trustDomain}
}

// The filters allow exactly the calls that authorization.Table allows.
func TestAuthorization(t *testing.T) {
	for _, c := range authorization.Table(t) {
		server, g := guardOf("cluster.local", c.Parts...)
		for _, call := range c.Allowed {
			if !allows(t, server, g, call) {
				t.Errorf("%s: %s is denied", c.Name, call)
			}
		}
		for _, call := range c.Denied {
			if allows(t, server, g, call) {
				t.Errorf("%s: %s is let in", c.Name, call)
			}
		}
	}
}

// allows applies the filters of a guard to a call. Clients use mutual TLS where the server's port has it.
func allows(t *testing.T, server *mesh.Workload, g Guard, call authorization.Call) bool {
	t.Helper()
	if !mtls.Mutual(server, authorization.Ports[call.Port]) {
		call.From = "plain"
	}
	if call.Port != "http" {
		return !slices.ContainsFunc(g.Bytes(), func(f *listener.Filter) bool {
			m := &bytes.RBAC{}
			unpack(t, f.GetTypedConfig(), m)
			return !applies(t, m.Rules, call, false)
		})
	}
	manager := &hcm.HttpConnectionManager{}
	g.Requests(manager)
	return !slices.ContainsFunc(manager.HttpFilters, func(f *hcm.HttpFilter) bool {
		m := &requests.RBAC{}
		unpack(t, f.GetTypedConfig(), m)
		return !applies(t, m.Rules, call, true)
	})
}

func unpack(t *testing.T, a *anypb.Any, to proto.Message) {
	t.Helper()
	if err := a.UnmarshalTo(to); err != nil {
		t.Fatal(err)
	}
}

func identity(c authorization.Call) string {
	if c.From == "plain" {
		return ""
	}
	return "spiffe://cluster.local/ns/shop/sa/" + c.From
}

// applies reports whether rules allow a call
// (https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/rbac/v3/rbac.proto).
func applies(t *testing.T, rules *rbac.RBAC, call authorization.Call, request bool) bool {
	t.Helper()
	e := evaluator{t, call, request}
	matched := false
	for _, p := range rules.Policies {
		matched = matched || slices.ContainsFunc(p.Permissions, e.permission) && slices.ContainsFunc(p.Principals, e.principal)
	}
	return matched == (rules.Action == rbac.RBAC_ALLOW)
}

type evaluator struct {
	t       *testing.T
	call    authorization.Call
	request bool
}

func (e evaluator) permission(p *rbac.Permission) bool {
	switch r := p.Rule.(type) {
	case *rbac.Permission_Any:
		return r.Any
	case *rbac.Permission_AndRules:
		return !slices.ContainsFunc(r.AndRules.Rules, func(p *rbac.Permission) bool { return !e.permission(p) })
	case *rbac.Permission_OrRules:
		return slices.ContainsFunc(r.OrRules.Rules, e.permission)
	case *rbac.Permission_NotRule:
		return !e.permission(r.NotRule)
	case *rbac.Permission_DestinationPort:
		return r.DestinationPort == uint32(authorization.Ports[e.call.Port])
	case *rbac.Permission_Header:
		value := map[string]string{":method": e.call.Method, ":authority": e.call.Host}[r.Header.Name]
		return e.ofRequest() && matches(e.t, r.Header.GetStringMatch(), value)
	case *rbac.Permission_UrlPath:
		p, _, _ := strings.Cut(e.call.Path, "?")
		return e.ofRequest() && matches(e.t, r.UrlPath.GetPath(), path.Clean(p))
	case *rbac.Permission_UriTemplate:
		m := &template.UriTemplateMatchConfig{}
		unpack(e.t, r.UriTemplate.TypedConfig, m)
		expr := strings.NewReplacer(`\*\*`, ".*", `\*`, "[^/]+").Replace(regexp.QuoteMeta(m.PathTemplate))
		return e.ofRequest() && regexp.MustCompile("^"+expr+"$").MatchString(e.call.Path)
	}
	e.t.Fatalf("unknown permission %v", p)
	return false
}

// ofRequest fails the test if filters for bytes use a property of requests.
func (e evaluator) ofRequest() bool {
	if !e.request {
		e.t.Errorf("%s: bytes are judged by a property of requests", e.call)
	}
	return e.request
}

func (e evaluator) principal(p *rbac.Principal) bool {
	switch i := p.Identifier.(type) {
	case *rbac.Principal_Any:
		return i.Any
	case *rbac.Principal_AndIds:
		return !slices.ContainsFunc(i.AndIds.Ids, func(p *rbac.Principal) bool { return !e.principal(p) })
	case *rbac.Principal_OrIds:
		return slices.ContainsFunc(i.OrIds.Ids, e.principal)
	case *rbac.Principal_NotId:
		return !e.principal(i.NotId)
	case *rbac.Principal_SourceIp:
		//lint:ignore SA1019 see fromAddress
		return netip.PrefixFrom(netip.MustParseAddr(i.SourceIp.AddressPrefix), int(i.SourceIp.PrefixLen.GetValue())).Contains(netip.MustParseAddr(authorization.Addresses[e.call.From]))
	case *rbac.Principal_Authenticated_:
		return identity(e.call) != "" && matches(e.t, i.Authenticated.PrincipalName, identity(e.call))
	}
	e.t.Fatalf("unknown principal %v", p)
	return false
}

func matches(t *testing.T, m *matcher.StringMatcher, value string) bool {
	t.Helper()
	fold := func(s string) string {
		if m.IgnoreCase {
			return strings.ToLower(s)
		}
		return s
	}
	switch p := m.MatchPattern.(type) {
	case *matcher.StringMatcher_Exact:
		return fold(p.Exact) == fold(value)
	case *matcher.StringMatcher_Prefix:
		return strings.HasPrefix(fold(value), fold(p.Prefix))
	case *matcher.StringMatcher_Suffix:
		return strings.HasSuffix(fold(value), fold(p.Suffix))
	case *matcher.StringMatcher_SafeRegex:
		return regexp.MustCompile("^(?:" + p.SafeRegex.Regex + ")$").MatchString(value)
	}
	t.Fatalf("unknown match %v", m)
	return false
}

// Policies that are too large, and those of an unknown workload, deny everything.
func TestClosedGuard(t *testing.T) {
	server, _ := guardOf("")
	for _, call := range []authorization.Call{{From: "client", Port: "tcp"}, {From: "client", Port: "http"}} {
		if allows(t, server, Guard{Authorization: &mesh.Authorization{TooLarge: true}}, call) {
			t.Errorf("%s is let in", call.Port)
		}
	}
}

// In a policy cluster.local stands for the mesh's own trust domain, whatever its name. Otherwise a DENY rule with
// that name would deny no client.
func TestTrustDomainOfPolicies(t *testing.T) {
	_, g := guardOf("corp.example", &mesh.AuthorizationSpec{Name: "p", Namespace: "shop", Deny: true, Rules: []mesh.AuthorizationRule{{From: [][]mesh.Condition{{
		{Of: mesh.Principal, Values: []string{"cluster.local/ns/shop/sa/client", "other.example/ns/shop/sa/client"}},
	}}}}})
	got := g.rules(true)[0].String()
	for id, want := range map[string]bool{"corp.example": true, "other.example": true, "cluster.local": false} {
		if id = "spiffe://" + id + "/ns/shop/sa/client"; strings.Contains(got, id) != want {
			t.Errorf("%s is in the rules: %t; want %t", id, !want, want)
		}
	}
}

// Paths are normalised only if a policy matches on them.
func TestPathsAreNormalised(t *testing.T) {
	for _, of := range []mesh.Attribute{mesh.Path, mesh.Method} {
		m := &hcm.HttpConnectionManager{}
		_, g := guardOf("", &mesh.AuthorizationSpec{Name: "p", Namespace: "shop", Rules: []mesh.AuthorizationRule{{To: [][]mesh.Condition{{{Of: of, Values: []string{"/a"}}}}}}})
		g.Requests(m)
		if m.NormalizePath.GetValue() != (of == mesh.Path) {
			t.Errorf("by %s: %v", of, m.NormalizePath)
		}
	}
}

// The test mutates the lines that decide whether a client is let in.
func TestMutants(t *testing.T) {
	mutants.Run(t, "TestAuthorization|TestClosedGuard|TestPathsAreNormalised|TestTrustDomainOfPolicies", map[string]mutants.Mutant{
		"an ALLOW rule that cannot be judged matches": {File: "rbac.go", From: `!p.Deny && slices.ContainsFunc(slices.Concat(slices.Concat(r.From...), slices.Concat(r.To...), r.When), unjudged)`, To: `false`},
		"a closed guard is open":                      {File: "rbac.go", From: `g.TooLarge`, To: `false`},
		"notValues are not looked at, of clients":     {File: "rbac.go", In: `out = append(out, &rbac.Principal{Identifier: &rbac.Principal_NotId{NotId: anyOf(c.NotValues)}})`, From: `out = append(out, &rbac.Principal{Identifier: &rbac.Principal_NotId{NotId: anyOf(c.NotValues)}})`, To: ``},
		"notValues are not looked at, of operations":  {File: "rbac.go", From: `out = append(out, &rbac.Permission{Rule: &rbac.Permission_NotRule{NotRule: anyOf(c.NotValues, !deny)}})`, To: ``},
		"a denied host with a port is another":        {File: "rbac.go", From: `wide && !strings.HasSuffix(v, "*")`, To: `false`},
		"a host with a port is not another":           {File: "rbac.go", From: `anyOf(c.NotValues, !deny)`, To: `anyOf(c.NotValues, deny)`},
		"cluster.local is another trust domain":       {File: "rbac.go", From: `v = g.TrustDomain + "/" + rest`, To: ``},
		"a host has a case":                           {File: "rbac.go", From: `m.IgnoreCase = m.GetSafeRegex() == nil`, To: ``},
		"an account of no namespace is of any":        {File: "rbac.go", From: `v = namespace + "/" + v`, To: `v = "bank/" + v`},
		"a namespace is a prefix":                     {File: "rbac.go", From: `"/sa/[^/]+"`, To: `".*"`},
		"paths are judged as they are written":        {File: "rbac.go", From: `m.NormalizePath = wrapperspb.Bool(true)`, To: ``},
	})
}
