package build_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/mesh/foreign"
)

func labelled(namespace, name string, labels ...string) *mesh.WorkloadSpec {
	w := &mesh.WorkloadSpec{Workload: mesh.Workload{Name: name, Namespace: namespace, Labels: map[string]string{}, Proxied: true}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		w.Labels[k] = v
	}
	return w
}

func allow(namespace, name string, selector map[string]string, rules ...mesh.AuthorizationRule) *mesh.AuthorizationSpec {
	return &mesh.AuthorizationSpec{Namespace: namespace, Name: name, Selector: selector, Rules: rules}
}

// A policy applies to the workloads that its selector matches, until it is deleted. In the root namespace, it
// applies to those in all namespaces, otherwise to those in its own namespace.
func TestAuthorizationPoliciesSelect(t *testing.T) {
	b := build.New(mesh.Config{})
	web, db, elsewhere := labelled("shop", "web", "app=web", "tier=front"), labelled("shop", "db", "app=db"), labelled("bank", "web", "app=web")
	b.Set(web, db, elsewhere)
	var last *mesh.Mesh
	of := func() string {
		m := b.Mesh()
		var out []string
		for _, w := range []*mesh.WorkloadSpec{web, db, elsewhere} {
			var names []string
			if pod := m.Pod(w.Namespace, w.Name); pod == nil {
				names = []string{"gone"}
			} else if a := m.Authorization(pod, w.Namespace); a != nil {
				for _, p := range a.Policies {
					names = append(names, p.Name)
				}
			}
			out = append(out, strings.Join(names, ","))
		}
		last = m
		return strings.Join(out, " | ")
	}
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"no policies", func() {}, " |  | "},
		{"one of a namespace", func() { b.Set(allow("shop", "all", nil)) }, "all | all | "},
		{"one with a selector", func() { b.Set(allow("shop", "web", map[string]string{"app": "web"})) }, "all,web | all | "},
		{"one with two labels", func() { b.Set(allow("shop", "two", map[string]string{"app": "web", "tier": "back"})) }, "all,web | all | "},
		{"of the root namespace", func() { b.Set(allow(mesh.DefaultRoot, "root", nil)) }, "root,all,web | root,all | root"},
		{"with a selector", func() { b.Set(allow(mesh.DefaultRoot, "root", map[string]string{"app": "web"})) }, "root,all,web | all | root"},
		{"a new label", func() { db = labelled("shop", "db", "app=db", "tier=back"); b.Set(db) }, "root,all,web | all | root"},
		{"another label", func() { db = labelled("shop", "db", "app=web", "tier=back"); b.Set(db) }, "root,all,web | root,all,two,web | root"},
		{"one gone", func() { b.Delete(allow("shop", "all", nil).Key()) }, "root,web | root,two,web | root"},
		{"a workload gone", func() { b.Delete(db.Key()) }, "root,web | gone | root"},
		{"all gone", func() {
			b.Delete(allow("shop", "web", nil).Key(), allow("shop", "two", nil).Key(), allow(mesh.DefaultRoot, "root", nil).Key())
		}, " | gone | "},
	} {
		step.change()
		before := last
		if got := of(); got != step.want {
			t.Errorf("%s: %q; want %q", step.name, got, step.want)
		}
		if before != nil && b.Mesh() != last {
			t.Errorf("%s: a mesh without changes is a new one", step.name)
		}
	}
}

// A policy changes neither the workload to which it applies nor its services, so that only the workload's own
// proxy gets it.
func TestAuthorizationIsTheServersAlone(t *testing.T) {
	b := build.New(mesh.Config{})
	b.Set(labelled("shop", "web", "app=web"), labelled("shop", "db", "app=db"))
	before := b.Mesh()
	b.Set(allow("shop", "p", map[string]string{"app": "web"}, mesh.AuthorizationRule{}))
	after := b.Mesh()
	if services, workloads := mesh.Changed(before, after); len(services)+len(workloads) > 0 || before.SameAuthorization(after) {
		t.Errorf("services %v, workloads %v", services, workloads)
	}
}

// If all clients that a policy allows have an identity, ports for bytes accept only mutual TLS.
func TestAuthorizationRequiresIdentity(t *testing.T) {
	condition := func(of mesh.Attribute, values ...string) []mesh.Condition {
		return []mesh.Condition{{Of: of, Values: values}}
	}
	from := func(c []mesh.Condition) mesh.AuthorizationRule {
		return mesh.AuthorizationRule{From: [][]mesh.Condition{c}}
	}
	to := func(c []mesh.Condition) mesh.AuthorizationRule {
		return mesh.AuthorizationRule{To: [][]mesh.Condition{c}}
	}
	deny := func(r ...mesh.AuthorizationRule) *mesh.AuthorizationSpec {
		return &mesh.AuthorizationSpec{Namespace: "shop", Name: "p", Deny: true, Rules: r}
	}
	anyone := mesh.AuthorizationRule{}
	for name, tt := range map[string]struct {
		policy *mesh.AuthorizationSpec
		want   string // ports that are STRICT: 80 is for requests, 3306 and 6379 for bytes
	}{
		"nothing is allowed":              {allow("shop", "p", nil), "3306 6379"},
		"everything is":                   {allow("shop", "p", nil, anyone), ""},
		"a principal":                     {allow("shop", "p", nil, from(condition(mesh.Principal, "*"))), "3306 6379"},
		"a namespace":                     {allow("shop", "p", nil, from(condition(mesh.ClientNS, "a"))), "3306 6379"},
		"an account or an address":        {allow("shop", "p", nil, from(condition(mesh.ServiceAccount, "a")), from(condition(mesh.SourceIP, "10.0.0.1"))), ""},
		"all but a principal":             {allow("shop", "p", nil, from([]mesh.Condition{{Of: mesh.Principal, NotValues: []string{"a"}}})), ""},
		"a port":                          {allow("shop", "p", nil, to(condition(mesh.AppPortNumber, "3306"))), "6379"},
		"all but a port":                  {allow("shop", "p", nil, to([]mesh.Condition{{Of: mesh.AppPortNumber, NotValues: []string{"3306"}}})), "3306"},
		"a method":                        {allow("shop", "p", nil, to(condition(mesh.Method, "GET"))), "3306 6379"},
		"what is not supported":           {allow("shop", "p", nil, from(condition(mesh.Unsupported, "x"))), "3306 6379"},
		"all are denied":                  {deny(anyone), "3306 6379"},
		"a principal is denied":           {deny(from(condition(mesh.Principal, "*"))), ""},
		"whoever is none is denied":       {deny(from([]mesh.Condition{{Of: mesh.Principal, NotValues: []string{"a"}}})), "3306 6379"},
		"a port is denied":                {deny(to(condition(mesh.AppPortNumber, "6379"))), "6379"},
		"a method is denied":              {deny(to(condition(mesh.Method, "GET"))), "3306 6379"},
		"an address is denied":            {deny(from(condition(mesh.SourceIP, "10.0.0.1"))), ""},
		"both conditions must be present": {deny(mesh.AuthorizationRule{From: [][]mesh.Condition{condition(mesh.SourceIP, "10.0.0.1")}, When: condition(mesh.Principal, "a")}), ""},
	} {
		m := build.Mesh(mesh.Config{}, tt.policy, labelled("shop", "db", "app=db"), &mesh.ServiceSpec{Name: "db", Namespace: "shop", Selector: map[string]string{"app": "db"}, Headless: true, Ports: []mesh.PortSpec{
			{Port: mesh.Port{Name: "a", Number: 80, Protocol: mesh.HTTP}}, {Port: mesh.Port{Name: "b", Number: 3306, Protocol: mesh.ServerFirst}}, {Port: mesh.Port{Name: "c", Number: 6379, Protocol: mesh.TCP}},
		}}, &mesh.SliceSpec{Name: "db", Namespace: "shop", Service: "db", Ports: []mesh.SlicePort{{Name: "a", Number: 80}, {Name: "b", Number: 3306}, {Name: "c", Number: 6379}},
			Endpoints: []mesh.SliceEndpoint{{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Pod: "db"}}})
		var strict []string
		for _, p := range m.Pod("shop", "db").Ports {
			if p.TLS == mesh.Strict {
				strict = append(strict, fmt.Sprint(p.Number))
			}
		}
		if got := strings.Join(strict, " "); got != tt.want {
			t.Errorf("%s: STRICT at %q; want %q", name, got, tt.want)
		}
	}
}

// If the policies of a workload are too large, they allow nothing, and a conflict reports that.
func TestLargeAuthorization(t *testing.T) {
	b := build.New(mesh.Config{})
	b.Set(labelled("shop", "web-1", "app=web"), labelled("shop", "web-2", "app=web"), labelled("shop", "db", "app=db"))
	values := slices.Repeat([]string{strings.Repeat("x", 1000)}, 60)
	for i := range 18 { // each has some 61,000 bytes
		b.Set(allow("shop", fmt.Sprint(i), map[string]string{"app": "web"}, mesh.AuthorizationRule{From: [][]mesh.Condition{{{Of: mesh.Principal, Values: values}}}}))
	}
	m := b.Mesh()
	if a := m.Authorization(m.Pod("shop", "web-1"), "shop"); a == nil || !a.TooLarge {
		t.Errorf("%+v", a)
	}
	if a := m.Authorization(m.Pod("shop", "db"), "shop"); a != nil {
		t.Errorf("%+v", a)
	}
	all := b.Conflicts()
	if len(all) != 1 || all[0].Object.String() != "Pod shop/web-1" || !strings.Contains(all[0].Message, "all connections to it are denied") || !strings.Contains(all[0].Message, "1 other workloads of shop") {
		t.Errorf("%+v", all)
	}
	b.Delete(allow("shop", "17", nil).Key())
	m = b.Mesh()
	if a := m.Authorization(m.Pod("shop", "web-1"), "shop"); a == nil || a.TooLarge || len(b.Conflicts()) > 0 {
		t.Errorf("%+v %v", a, b.Conflicts())
	}
}

// A policy in istio-system is reported: in Istio it applies to all namespaces, but here it applies only to
// istio-system.
func TestAuthorizationOfIstiosRoot(t *testing.T) {
	policy := func() *mesh.AuthorizationSpec {
		p := allow("istio-system", "all", nil)
		p.Unenforced = foreign.Read(map[string]any{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": map[string]any{"namespace": "istio-system", "name": "all"}})
		return p
	}
	own := labelled("shop", "web")
	own.Own = true
	b := build.New(mesh.Config{})
	b.Set(policy(), own)
	b.Mesh()
	if all := b.Conflicts(); len(all) != 1 || !strings.Contains(all[0].Message, "it holds for istio-system alone") {
		t.Errorf("%+v", all)
	}
	b = build.New(mesh.Config{RootNamespace: "istio-system"})
	b.Set(policy(), own)
	m := b.Mesh()
	if all := b.Conflicts(); len(all) != 0 || m.Authorization(m.Pod("shop", "web"), "shop") == nil {
		t.Errorf("%+v", all)
	}
}

// BenchmarkAuthorization changes one of 1,000 policies among 10,000 workloads.
func BenchmarkAuthorization(b *testing.B) {
	builder := build.New(mesh.Config{})
	for i := range 10_000 {
		builder.Set(labelled(fmt.Sprintf("ns-%d", i%10), fmt.Sprintf("pod-%d", i), "all=yes", fmt.Sprintf("app=%d", i%1000)))
	}
	policy := func(i int, values ...string) *mesh.AuthorizationSpec {
		return allow(fmt.Sprintf("ns-%d", i%10), fmt.Sprint(i), map[string]string{"app": fmt.Sprint(i)}, mesh.AuthorizationRule{From: [][]mesh.Condition{{{Of: mesh.Principal, Values: values}}}})
	}
	for i := range 1000 {
		builder.Set(policy(i, "a"))
	}
	builder.Mesh()
	n := 0
	for b.Loop() {
		n++
		builder.Set(policy(n%1000, fmt.Sprint(n)))
		builder.Mesh()
	}
}
