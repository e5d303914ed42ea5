package rbac

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbac "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	requests "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	bytes "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/mesh/objects"
	"outrider.dev/internal/core/xds/mtls"
	"outrider.dev/test/authorization"
	"outrider.dev/test/mutants"
	"outrider.dev/test/tier"
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
	return permits(t, filters(t, g, call.Path != ""), call)
}

// filters returns the rules of a guard's filters for requests, or for bytes.
func filters(t *testing.T, g Guard, ofRequests bool) (out []*rbac.RBAC) {
	t.Helper()
	if !ofRequests {
		for _, f := range g.Bytes() {
			m := &bytes.RBAC{}
			unpack(t, f.GetTypedConfig(), m)
			out = append(out, m.Rules)
		}
		return out
	}
	manager := &hcm.HttpConnectionManager{}
	g.Requests(manager)
	for _, f := range manager.HttpFilters {
		m := &requests.RBAC{}
		unpack(t, f.GetTypedConfig(), m)
		out = append(out, m.Rules)
	}
	return out
}

// permits reports whether all filters let a call in.
func permits(t *testing.T, filters []*rbac.RBAC, call authorization.Call) bool {
	t.Helper()
	return !slices.ContainsFunc(filters, func(r *rbac.RBAC) bool { return !applies(t, r, call, call.Path != "") })
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
		return r.DestinationPort == uint32(e.port())
	case *rbac.Permission_Header:
		value := map[string]string{":method": e.call.Method, ":authority": e.call.Host}[r.Header.Name]
		return e.ofRequest() && matches(e.t, r.Header.GetStringMatch(), value)
	case *rbac.Permission_UrlPath:
		path, _, _ := strings.Cut(e.call.Path, "?")
		return e.ofRequest() && matches(e.t, r.UrlPath.GetPath(), path)
	}
	e.t.Fatalf("unknown permission %v", p)
	return false
}

// port returns the port of the server, which may be a number in a call of the matrix.
func (e evaluator) port() uint16 {
	if n, err := strconv.ParseUint(e.call.Port, 10, 16); err == nil {
		return uint16(n)
	}
	return authorization.Ports[e.call.Port]
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
		return fullMatch(p.SafeRegex.Regex, value)
	}
	t.Fatalf("unknown match %v", m)
	return false
}

var compiled = map[string]*regexp.Regexp{}

// fullMatch reports whether an expression matches the whole of a text, as in Envoy.
func fullMatch(expression, text string) bool {
	if compiled[expression] == nil {
		compiled[expression] = regexp.MustCompile("^(?:" + expression + ")$")
	}
	return compiled[expression].MatchString(text)
}

// A method in another case, which HTTP/2 can carry, is refused by both actions.
func TestMethods(t *testing.T) {
	post := []string{"POST"}
	tests := map[string]struct {
		deny      bool
		condition mesh.Condition
		allowed   string
	}{
		"DENY":          {true, mesh.Condition{Of: mesh.Method, Values: post}, "GET PUT"},
		"ALLOW":         {false, mesh.Condition{Of: mesh.Method, Values: post}, "POST"},
		"not… of DENY":  {true, mesh.Condition{Of: mesh.Method, NotValues: post}, "POST"},
		"not… of ALLOW": {false, mesh.Condition{Of: mesh.Method, NotValues: post}, "GET PUT"},
		"DENY of any":   {true, mesh.Condition{Of: mesh.Method, Values: []string{"*"}}, ""},
		"DENY by start": {true, mesh.Condition{Of: mesh.Method, Values: []string{"P*"}}, "GET"},
	}
	for name, tt := range tests {
		_, g := guardOf("", &mesh.AuthorizationSpec{Name: "p", Namespace: "shop", Deny: tt.deny, Rules: []mesh.AuthorizationRule{{To: [][]mesh.Condition{{tt.condition}}}}})
		var allowed []string
		for _, method := range []string{"GET", "POST", "post", "Post", "PUT"} {
			if permits(t, filters(t, g, true), authorization.Call{From: "plain", Port: "http", Method: method, Path: "/", Host: "x"}) {
				allowed = append(allowed, method)
			}
		}
		if got := strings.Join(allowed, " "); got != tt.allowed {
			t.Errorf("%s: %q are allowed, want %q", name, got, tt.allowed)
		}
	}
}

// Of any value and any path or host, a wide match includes the narrow one, and both are expressions that compile.
func FuzzMatch(f *testing.F) {
	for _, k := range authorization.Kinds {
		for _, v := range k.Paths {
			f.Add(v, "/admin/x;y%2f/b", true)
		}
		for _, v := range k.Hosts {
			f.Add(v, "Admin.shop.:8080", false)
		}
	}
	f.Fuzz(func(t *testing.T, value, text string, ofPath bool) {
		of, field, call := mesh.HostName, "hosts", authorization.Call{Port: "http", Method: "GET", Path: "/", Host: text}
		if ofPath {
			of, field, call.Path, call.Host = mesh.Path, "paths", text, "x"
		}
		rules := []any{map[string]any{"to": []any{map[string]any{"operation": map[string]any{field: []string{value}}}}}}
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"rules": rules}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := objects.AuthorizationPolicy(raw); err != nil || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return // Envoy has refused or encoded such a text
		}
		e := evaluator{t, call, true}
		if e.permission(operation(of, []string{value}, false)) && !e.permission(operation(of, []string{value}, true)) {
			t.Errorf("%q matches %q narrow, but not wide", value, text)
		}
		if ofPath && isNormalised(text) {
			judgePath(t, value, text)
		}
	})
}

// judgePath fails the test if a match that denies misses a reading of a path, or a match that allows matches a path that
// has another reading.
func judgePath(t *testing.T, value, path string) {
	t.Helper()
	e := evaluator{t, authorization.Call{Port: "http", Method: "GET", Path: path}, true}
	names := authorization.PathVerdict([]string{value}, path)
	if names != authorization.No && !e.permission(operation(mesh.Path, []string{value}, true)) {
		t.Errorf("%q (%s) is not denied by %q", path, names, value)
	}
	asWritten := strings.ContainsAny(value, `;%\`) || strings.Contains(value, "//") // the author of such a value allows what it says
	if names != authorization.Yes && !asWritten && e.permission(operation(mesh.Path, []string{value}, false)) {
		t.Errorf("%q (%s) is allowed by %q", path, names, value)
	}
}

var encodedUnreserved = regexp.MustCompile("%(?:2[DdEe]|3[0-9]|4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe])")

// isNormalised reports whether a path may be one that Envoy has normalised.
func isNormalised(path string) bool {
	segments := strings.Split(path, "/")
	return segments[0] == "" && len(segments) > 1 && !slices.Contains(segments, ".") && !slices.Contains(segments, "..") &&
		!strings.ContainsAny(path, "?#\\\"<>^`{|}") && !encodedUnreserved.MatchString(path)
}

// Of paths with slashes, parameters and encoded characters at any place, none that a server may read as a denied one
// passes, and none is allowed that a server may read as another.
func TestReadings(t *testing.T) {
	values := strings.Fields("/admin/x /a/b / /pre/fix* /p/* *.php *x/end *0 /t/{*}/z /{*}/admin /one/{*} /v/{**} /x/{**}/y /f/{**}/ /100%/{*} /files/a:b")
	starts := strings.Fields("/admin/x /a/b / /pre/fixy/z /p/q /q.php /x/end /a%20 /t/m/z /m/admin /one/t /v/w /x/q/y /f/g/ /100%25/a /files/a:b")
	pieces := strings.Fields("/ / // /; ; ;x ;/ . .. %2f %5C %3b %3B %20 %25 % a x : %3a")
	r := rand.New(rand.NewPCG(1, 2))
	for range tier.Times(2000, 100_000) {
		i := r.IntN(len(values))
		path := starts[i]
		for range 1 + r.IntN(3) {
			at := 1 + r.IntN(len(path))
			path = path[:at] + pieces[r.IntN(len(pieces))] + path[at:]
		}
		if isNormalised(path) {
			judgePath(t, values[i], path)
		}
	}
}

// The filters refuse what the matrix says: a sample of it.
func TestMatrix(t *testing.T) {
	_, g := guardOf("cluster.local", authorization.MatrixPolicies(t)...)
	filters, wrong := filters(t, g, true), 0
	for _, c := range authorization.Cells {
		for _, p := range authorization.Paths {
			for _, h := range authorization.Hosts {
				if !tier.Sample(c.Place.Name+c.Kind.Name+p.Written+h.String(), 8) {
					continue
				}
				call := authorization.Call{From: "plain", Port: strconv.Itoa(int(c.Port)), Method: "GET", Path: p.Base, Host: h.Sent}
				if refused := !permits(t, filters, call); refused != c.Refused(p, h) {
					if wrong++; wrong > 20 {
						t.FailNow()
					}
					t.Errorf("%s, %s: %s (%s) of %s (%s): refused: %t", c.Place.Name, c.Kind.Name, p.Base, c.Path(p), h.Sent, c.Host(h), refused)
				}
			}
		}
	}
}

// A policy takes about as many bytes as Size says, and an Envoy can load its expressions, however a tenant writes it.
func TestSizes(t *testing.T) {
	lists := map[string][]mesh.Condition{}
	for name, one := range map[string]string{"names": "h%d.shop.example", "names with ports": "h%d.shop:8%[1]d", "IPv6": "[fd96:1:2:3:4:5:6:%x]", "suffixes": "*.h%d.shop"} {
		lists["hosts, "+name] = []mesh.Condition{{Of: mesh.HostName, Values: many(1000, one)}}
	}
	for name, one := range map[string]string{"segments": "/a/b/c/%d", "other characters": "/!*'()%d", "no ASCII": "/é%d", "suffixes": `*\"%d`, "templates": "/{*}/a/{**}/%d"} {
		lists["paths, "+name] = []mesh.Condition{{Of: mesh.Path, Values: many(500, one)}}
	}
	for _, one := range []string{"/a", "/;", "!", "é", "/{*}", "*"} {
		lists["a long path of "+one] = []mesh.Condition{{Of: mesh.Path, Values: []string{strings.Repeat(one, 1000/len(one))}}}
	}
	lists["a long suffix"] = []mesh.Condition{{Of: mesh.Path, Values: []string{"*" + strings.Repeat("a", 1000)}}}
	lists["principals"] = []mesh.Condition{{Of: mesh.Principal, Values: many(1000, "cluster.local/ns/shop/sa/client-%d")}}
	for name, values := range lists { // any order: independent policies
		for _, deny := range []bool{true, false} {
			for _, not := range []bool{false, true} {
				list := values
				if not {
					list = []mesh.Condition{{Of: values[0].Of, NotValues: values[0].Values}}
				}
				rule := mesh.AuthorizationRule{To: [][]mesh.Condition{list}}
				if list[0].Of == mesh.Principal {
					rule = mesh.AuthorizationRule{From: rule.To}
				}
				spec := &mesh.AuthorizationSpec{Name: "p", Namespace: "shop", Deny: deny, Rules: []mesh.AuthorizationRule{rule}}
				sized(t, fmt.Sprintf("%s, deny %t, not… %t", name, deny, not), spec)
			}
		}
	}
	var operations [][]mesh.Condition
	for _, h := range many(300, "h%d") {
		operations = append(operations, []mesh.Condition{{Of: mesh.HostName, Values: []string{h}}}, []mesh.Condition{{Of: mesh.Path, Values: []string{"/" + h}}})
	}
	for _, deny := range []bool{true, false} {
		sized(t, "many operations", &mesh.AuthorizationSpec{Name: "p", Namespace: "shop", Deny: deny, Rules: []mesh.AuthorizationRule{{To: operations}}})
	}
}

func many(n int, format string) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

// sized checks the filters for a policy.
func sized(t *testing.T, name string, spec *mesh.AuthorizationSpec) {
	t.Helper()
	_, g := guardOf("cluster.local", spec)
	rules := filters(t, g, true)[0]
	if got, most := proto.Size(rules), spec.Size()*3/2+200; got > most {
		t.Errorf("%s: %d bytes; by its size it has %d at most", name, got, most)
	}
	for _, m := range regexes(rules.ProtoReflect(), nil) {
		if len(m) > 30<<10 {
			t.Errorf("%s: an expression of %d bytes", name, len(m))
		}
	}
}

// regexes returns all regular expressions in a message.
func regexes(m protoreflect.Message, out []string) []string {
	if r, ok := m.Interface().(*matcher.RegexMatcher); ok {
		return append(out, r.Regex)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool { // any order: all are collected
		switch {
		case f.Kind() != protoreflect.MessageKind:
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				out = regexes(v.Message(), out)
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				out = regexes(v.List().Get(i).Message(), out)
			}
		default:
			out = regexes(v.Message(), out)
		}
		return true
	})
	return out
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
	mutants.Run(t, "TestAuthorization|TestMatrix|TestReadings|TestMethods|TestSizes|TestClosedGuard|TestPathsAreNormalised|TestTrustDomainOfPolicies", map[string]mutants.Mutant{
		"an ALLOW rule that cannot be judged matches": {File: "rbac.go", From: `!p.Deny && slices.ContainsFunc(slices.Concat(slices.Concat(r.From...), slices.Concat(r.To...), r.When), unjudged)`, To: `false`},
		"a closed guard is open":                      {File: "rbac.go", From: `g.TooLarge`, To: `false`},
		"notValues are not looked at, of clients":     {File: "rbac.go", In: `out = append(out, &rbac.Principal{Identifier: &rbac.Principal_NotId{NotId: anyOf(c.NotValues)}})`, From: `out = append(out, &rbac.Principal{Identifier: &rbac.Principal_NotId{NotId: anyOf(c.NotValues)}})`, To: ``},
		"notValues are not looked at, of operations":  {File: "rbac.go", From: `out = append(out, not(operation(c.Of, c.NotValues, !deny)))`, To: ``},
		"values of DENY match narrow":                 {File: "rbac.go", From: `operation(c.Of, c.Values, deny)`, To: `operation(c.Of, c.Values, false)`},
		"values of ALLOW match wide":                  {File: "rbac.go", From: `operation(c.Of, c.Values, deny)`, To: `operation(c.Of, c.Values, true)`},
		"notValues of ALLOW match narrow":             {File: "rbac.go", From: `operation(c.Of, c.NotValues, !deny)`, To: `operation(c.Of, c.NotValues, false)`},
		"notValues of DENY match wide":                {File: "rbac.go", From: `operation(c.Of, c.NotValues, !deny)`, To: `operation(c.Of, c.NotValues, true)`},
		"a method has no case, to allow":              {File: "match.go", From: `wide && m.GetSafeRegex() == nil`, To: `m.GetSafeRegex() == nil`},
		"a method has a case, to deny":                {File: "match.go", From: `wide && m.GetSafeRegex() == nil`, To: `false`},
		"unresolved segments are not denied":          {File: "match.go", From: `[]string{unresolved}`, To: `[]string{}`},
		"unresolved segments are allowed":             {File: "match.go", From: `not(matchPath(message.Regex(unresolved)))`, To: `anything()`},
		"a parameter has the end of a path":           {File: "match.go", In: `out = allPermissions([]*rbac.Permission{out, not(other)})`, From: `not(other)`, To: `anything()`},
		"slashes are written once":                    {File: "match.go", In: `out.WriteString(separator)`, From: `separator`, To: "parameters + slash"},
		"segments have no parameters":                 {File: "match.go", In: `out.WriteString(separator)`, From: `separator`, To: "slash + `+`"},
		"a nameless segment is one of parameters":     {File: "match.go", In: `out.WriteString(separator)`, From: `separator`, To: "parameters + slash + `+`"},
		"a semicolon is not encoded":                  {File: "match.go", In: `return spellings(v) + parameters`, From: `spellings(v) + parameters`, To: "spellings(v) + `(?:;[^/]*)?`"},
		"a semicolon after .. is not encoded":         {File: "match.go", From: `[]string{unresolved}`, To: "[]string{strings.ReplaceAll(unresolved, `|%3[bB]`, ``)}"},
		"{*} is a segment of parameters":              {File: "match.go", From: `not(matchPath(message.Regex(nameless)))`, To: `anything()`},
		"{**} is slashes alone":                       {File: "match.go", In: `many := named`, From: `named`, To: "`.*`"},
		"the end of a path is within a character":     {File: "match.go", From: "`.*(?:` + semicolon + `[^/]*|%[0-9A-Fa-f]?)`", To: "`.*(?:` + semicolon + `[^/]*)`"},
		"a path ends without parameters":              {File: "match.go", In: `return spellings(v) + parameters`, From: `spellings(v) + parameters`, To: `spellings(v)`},
		"encoded characters are others":               {File: "match.go", From: `"(?:" + regexp.QuoteMeta(string(c)) + "|" + encoded(c) + ")"`, To: `regexp.QuoteMeta(string(c))`},
		"one segment is a number of characters":       {File: "match.go", From: "expand(v, regexp.QuoteMeta, oneSegment, many)", To: "expand(v, regexp.QuoteMeta, `[^/]+`, many)"},
		"{*} needs a character, to deny":              {File: "match.go", In: "return expand(v, spellings, `[^/]*`, `.*`) + parameters", From: "expand(v, spellings, `[^/]*`, `.*`)", To: "expand(v, spellings, `[^/]+`, `.*`)"},
		"malformed hosts are not denied":              {File: "match.go", From: `not(unambiguous)`, To: `not(anything())`},
		"malformed hosts are allowed":                 {File: "match.go", From: `allPermissions([]*rbac.Permission{anyPermission(out...), unambiguous})`, To: `anyPermission(out...)`},
		"a denied host has no port":                   {File: "match.go", From: "`(?::.*)?`", To: "``"},
		"the default port is written":                 {File: "match.go", From: `number == "80"`, To: `false`},
		"a denied host is not absolute":               {File: "match.go", In: "return regexp.QuoteMeta(strings.TrimSuffix(v, \".\")) + `\\.?` + port", From: "`\\.?`", To: "``"},
		"an IPv6 address is written in one way":       {File: "match.go", From: `a.Is6()`, To: `a.Is4()`},
		"a host has a case, to allow":                 {File: "match.go", From: `m.IgnoreCase = true`, To: ``},
		"a host has a case, to deny":                  {File: "match.go", From: `"(?i)"`, To: `""`},
		"an expression has any length":                {File: "match.go", From: `size+len(expressions[n]) <= maxExpression`, To: `true`},
		"cluster.local is another trust domain":       {File: "rbac.go", From: `v = g.TrustDomain + "/" + rest`, To: ``},
		"an account of no namespace is of any":        {File: "rbac.go", From: `v = namespace + "/" + v`, To: `v = "bank/" + v`},
		"a namespace is a prefix":                     {File: "rbac.go", From: `"/sa/[^/]+"`, To: `".*"`},
		"paths are judged as they are written":        {File: "rbac.go", From: `m.NormalizePath = wrapperspb.Bool(true)`, To: ``},
	})
}
