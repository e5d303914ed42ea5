package build_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

// In a cluster with another mesh, an ignored object is reported only while it applies to a workload with
// Outrider's proxy.
func TestIgnoredObjects(t *testing.T) {
	b := build.New(mesh.Config{})
	policy := func(namespace, name string, selector map[string]string) *mesh.IgnoredSpec {
		return &mesh.IgnoredSpec{Kind: "AuthorizationPolicy", Namespace: namespace, Name: name, Guards: true, Selector: selector}
	}
	pod := func(namespace, app string, own bool) *mesh.WorkloadSpec {
		return &mesh.WorkloadSpec{Workload: mesh.Workload{Name: app, Namespace: namespace, Labels: map[string]string{"app": app}, Proxied: true, Own: own}}
	}
	reported := func() string {
		b.Mesh()
		var out []string
		for _, c := range b.Conflicts() {
			out = append(out, c.Object.Namespace+"/"+c.Object.Name)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	db := map[string]string{"app": "db"}
	b.Set(policy("shop", "all", nil), policy("shop", "db", db), policy("istio-system", "mesh", nil), policy("outrider-system", "db", db), policy("other", "all", nil))
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"no pods", func() {}, ""},
		{"pods of another mesh", func() { b.Set(pod("shop", "db", false), pod("other", "web", false)) }, ""},
		{"one of Outrider", func() { b.Set(pod("shop", "web", true)) }, "istio-system/mesh shop/all"},
		{"one that a selector matches", func() { b.Set(pod("shop", "db", true)) }, "istio-system/mesh outrider-system/db shop/all shop/db"},
		{"a policy gone", func() { b.Delete(policy("shop", "all", nil).Key()) }, "istio-system/mesh outrider-system/db shop/db"},
		{"the pod gone", func() { b.Delete(pod("shop", "db", true).Key()) }, "istio-system/mesh"},
		{"the last one gone", func() { b.Delete(pod("shop", "web", true).Key()) }, ""},
	} {
		step.change()
		if got := reported(); got != step.want {
			t.Errorf("%s: %q; want %q", step.name, got, step.want)
		}
	}
}

// The number of ignored objects that are reported for one namespace is limited. Objects that should forbid
// something come first.
func TestIgnoredObjectsAreBounded(t *testing.T) {
	b := build.New(mesh.Config{})
	b.OnlyMesh = true
	for i := range 200 {
		b.Set(&mesh.IgnoredSpec{Kind: "VirtualService", Namespace: "shop", Name: fmt.Sprint(i)})
	}
	b.Set(&mesh.IgnoredSpec{Kind: "WasmPlugin", Namespace: "shop", Name: "x", Guards: true})
	b.Mesh()
	all := b.Conflicts()
	if n := len(all); n != 101 || all[0].Severity != "error: " || all[n-1].Message != "101 or more other objects of it are ignored" {
		t.Errorf("%d problems, %+v ... %+v", n, all[0], all[n-1])
	}
}
