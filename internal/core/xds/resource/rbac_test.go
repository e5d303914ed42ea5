package resource_test

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
	state "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	template "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
	"outrider.dev/test/authorization"
)

// guarded returns the parts to which the table refers, with some policies.
func guarded(policies ...mesh.Part) []mesh.Part {
	return append(policies, pod("server-1", "server", authorization.Addresses["server"]),
		service("web", "server", "10.96.0.1", port(8080, mesh.HTTP), port(6379, mesh.TCP), port(3306, mesh.ServerFirst)))
}

func guardedProxy(change ...func(*xds.Proxy)) *xds.Proxy {
	return client(append(change, func(p *xds.Proxy) {
		p.ID, p.ServiceAccount, p.Addresses = "sidecar~10.244.1.2~server-1.shop~x", "server", addresses(authorization.Addresses["server"])
	})...)
}

// The filters allow what the table says, in all listeners for the port.
func TestAuthorization(t *testing.T) {
	for _, c := range authorization.Table(t) {
		t.Run(c.Name, func(t *testing.T) {
			v := snapshot(t, guarded(c.Parts...)...)
			for name, p := range map[string]*xds.Proxy{
				"with files":     guardedProxy(),
				"with our agent": guardedProxy(withAgent),
			} {
				for _, l := range listenersOf(t, v, p) {
					for _, call := range c.Allowed {
						if got := judge(t, l, call); got == denied {
							t.Errorf("%s: %s: %s is denied", name, l.Name, call)
						}
					}
					for _, call := range c.Denied {
						if got := judge(t, l, call); got == allowed {
							t.Errorf("%s: %s: %s is let in", name, l.Name, call)
						}
					}
				}
			}
		})
	}
}

// listenersOf returns the inbound listeners.
func listenersOf(t *testing.T, v xds.Snapshot, p *xds.Proxy) []*listener.Listener {
	t.Helper()
	var out []*listener.Listener
	for _, r := range flatten(v.Wildcard(p, xds.ListenerType, nil), xds.ListenerType) {
		l := message(t, r.Resource).(*listener.Listener)
		if strings.Contains(strings.ToLower(l.Name), "inbound") {
			out = append(out, l)
		}
	}
	if len(out) < 2 {
		t.Fatalf("%d inbound listeners", len(out))
	}
	return out
}

const (
	absent  = "no chain" // the connection is handed to another listener, or refused
	allowed = "allowed"
	denied  = "denied"
)

// judge finds the chain for a call, and applies its filters.
func judge(t *testing.T, l *listener.Listener, call authorization.Call) string {
	t.Helper()
	number := authorization.Ports[call.Port]
	var chain *listener.FilterChain
	for _, f := range l.FilterChains {
		tlsOnly := f.TransportSocket != nil
		m := f.FilterChainMatch
		if m.GetDestinationPort().GetValue() != uint32(number) || m.GetTransportProtocol() == "tls" && !tlsOnly {
			continue
		}
		if identity(call) != "" && tlsOnly || identity(call) == "" && !tlsOnly && (chain == nil || call.Port != "http") {
			chain = f
		}
	}
	if chain == nil {
		// A client with an identity uses plain text if its proxy would: see mtls.Mutual.
		if identity(call) != "" && call.Port == "first" {
			return judge(t, l, authorization.Call{From: "plain", Port: call.Port})
		}
		if call.Port == "first" || identity(call) == "" {
			return absent
		}
		t.Fatalf("%s has no chain for %s", l.Name, call)
	}
	for _, f := range chain.Filters {
		switch m := unpacked(t, f.GetTypedConfig()).(type) {
		case *state.Config:
			return absent // to the internal listener
		case *bytes.RBAC:
			if !applies(t, m.Rules, call, false) {
				return denied
			}
		case *hcm.HttpConnectionManager:
			for _, f := range m.HttpFilters {
				if m, ok := unpacked(t, f.GetTypedConfig()).(*requests.RBAC); ok && !applies(t, m.Rules, call, true) {
					return denied
				}
			}
		}
	}
	return allowed
}

func identity(c authorization.Call) string {
	if c.From == "plain" {
		return ""
	}
	return "spiffe://cluster.local/ns/shop/sa/" + c.From
}

func unpacked(t *testing.T, a *anypb.Any) proto.Message {
	t.Helper()
	m, err := a.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m
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
		m := unpacked(e.t, r.UriTemplate.TypedConfig).(*template.UriTemplateMatchConfig)
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
		//lint:ignore SA1019 see fromAddress in package rbac
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

// A proxy whose workload is unknown accepts no connection if a policy may apply to it.
func TestAuthorizationOfAnUnknownWorkload(t *testing.T) {
	unknown := func() *xds.Proxy {
		return client(func(p *xds.Proxy) { p.ID, p.Addresses = "sidecar~10.244.9.9~new-1.shop~x", addresses("10.244.9.9") })
	}
	policy := func(namespace string) mesh.Part {
		return &mesh.AuthorizationSpec{Name: "p", Namespace: namespace, Selector: map[string]string{"app": "another"}, Rules: []mesh.AuthorizationRule{{}}}
	}
	for name, tt := range map[string]struct {
		parts []mesh.Part
		deny  bool
	}{
		"no policies":               {nil, false},
		"one of another namespace":  {[]mesh.Part{policy("bank")}, false},
		"one of its namespace":      {[]mesh.Part{policy("shop")}, true},
		"one of the root namespace": {[]mesh.Part{policy(mesh.DefaultRoot)}, true},
	} {
		v := snapshot(t, guarded(tt.parts...)...)
		for _, l := range listenersOf(t, v, unknown()) {
			for _, c := range l.FilterChains {
				if !strings.HasPrefix(c.Name, "app") {
					continue
				}
				m, ok := unpacked(t, c.Filters[0].GetTypedConfig()).(*bytes.RBAC)
				if ok != tt.deny || ok && (m.Rules.Action != rbac.RBAC_ALLOW || len(m.Rules.Policies) > 0) {
					t.Errorf("%s: %s: %s has %v", name, l.Name, c.Name, c.Filters)
				}
			}
		}
	}
}

// A change of a policy changes only the listeners of the workloads that it selects.
func TestAuthorizationReachesWhatItSelects(t *testing.T) {
	m := newTestMesh(append(guarded(), pod("other-1", "other", "10.244.4.2"))...)
	s := resource.New(m)
	before, _ := s.Current()
	m.builder.Set(&mesh.AuthorizationSpec{Name: "p", Namespace: "shop", Selector: map[string]string{"app": "server"}, Rules: []mesh.AuthorizationRule{{}}})
	after, _ := s.Current()
	changes, ok := after.Diff(before)
	for typeURL, c := range changes {
		if typeURL != xds.ListenerType || !c.Wildcard || len(c.Names) > 0 || c.Match != nil {
			t.Errorf("%s: %+v", typeURL, c)
		}
	}
	if !ok || len(changes) != 1 {
		t.Errorf("%v %t", changes, ok)
	}
	versions := func(v xds.Snapshot, p *xds.Proxy) (out []string) {
		for _, r := range flatten(v.Wildcard(p, xds.ListenerType, nil), xds.ListenerType) {
			out = append(out, r.Resource.Name+" "+r.Resource.Version)
		}
		return out
	}
	other := func() *xds.Proxy {
		return client(func(p *xds.Proxy) {
			p.ID, p.ServiceAccount, p.Addresses = "sidecar~10.244.4.2~other-1.shop~x", "other", addresses("10.244.4.2")
		})
	}
	if !slices.Equal(versions(before, other()), versions(after, other())) {
		t.Error("a policy changes the listeners of another workload")
	}
	if slices.Equal(versions(before, guardedProxy(withAgent)), versions(after, guardedProxy(withAgent))) {
		t.Error("a policy does not change the listeners of its workload")
	}
}

// In a policy cluster.local stands for the mesh's own trust domain, whatever its name. Otherwise a DENY
// rule with that name would deny no one.
func TestTrustDomainOfPolicies(t *testing.T) {
	deny := &mesh.AuthorizationSpec{Name: "p", Namespace: "shop", Deny: true, Rules: []mesh.AuthorizationRule{{From: [][]mesh.Condition{{
		{Of: mesh.Principal, Values: []string{"cluster.local/ns/shop/sa/client", "other.example/ns/shop/sa/client"}},
	}}}}}
	v := snapshotOf(t, mesh.Config{TrustDomain: "corp.example"}, guarded(deny)...)
	got := text(t, []xds.Dependency{{Type: xds.ListenerType, Resource: v.Named(guardedProxy(), xds.ListenerType, "virtualInbound").Resource}})
	for id, want := range map[string]bool{"corp.example": true, "other.example": true, "cluster.local": false} {
		if id = "spiffe://" + id + "/ns/shop/sa/client"; strings.Contains(got, id) != want {
			t.Errorf("%s is in the rules: %t; want %t", id, !want, want)
		}
	}
}

// Paths are normalised only where a policy judges them.
func TestPathsAreNormalised(t *testing.T) {
	for _, of := range []mesh.Attribute{mesh.Path, mesh.Method} {
		v := snapshot(t, guarded(&mesh.AuthorizationSpec{Name: "p", Namespace: "shop", Rules: []mesh.AuthorizationRule{{To: [][]mesh.Condition{{{Of: of, Values: []string{"/a"}}}}}}})...)
		for _, l := range listenersOf(t, v, guardedProxy()) {
			for _, c := range l.FilterChains {
				for _, f := range c.Filters {
					if m, ok := unpacked(t, f.GetTypedConfig()).(*hcm.HttpConnectionManager); ok && m.NormalizePath.GetValue() != (of == mesh.Path) {
						t.Errorf("%s: %s: by %s: %v", l.Name, c.Name, of, m.NormalizePath)
					}
				}
			}
		}
	}
}
