package kube

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

func routeOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: out}
}

// shopMesh returns a mesh for routes. The Service shop/web has the ports http (80), calls (90) and mysql
// (3306). shop/log has a UDP port. pay/web may be used by GRPCRoutes in shop, because of a grant. bank/web is
// exported only to its own namespace.
func shopMesh(parts ...mesh.Part) *mesh.Mesh {
	b := build.New(mesh.Config{})
	service := func(namespace, name string, exportTo []string, ports ...mesh.Port) {
		s := &mesh.ServiceSpec{Namespace: namespace, Name: name, ExportTo: exportTo}
		for _, p := range ports {
			s.Ports = append(s.Ports, mesh.PortSpec{Port: p})
		}
		b.Set(s)
	}
	service("shop", "log", nil, mesh.Port{Number: 514, Protocol: mesh.UDP})
	service("pay", "web", nil, mesh.Port{Number: 80})
	service("bank", "web", []string{"."}, mesh.Port{Number: 80})
	b.Set(&mesh.GrantSpec{Namespace: "pay", Name: "g", From: []mesh.GrantFrom{{Kind: mesh.KindGRPC, Namespace: "shop"}}, To: []string{""}})
	b.Set(parts...)
	b.Set(&mesh.ServiceSpec{Namespace: "shop", Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.7")}, Ports: []mesh.PortSpec{
		{Port: mesh.Port{Name: "http", Number: 80}}, {Port: mesh.Port{Name: "calls", Number: 90, Protocol: mesh.GRPC}}, {Port: mesh.Port{Name: "mysql", Number: 3306, Protocol: mesh.ServerFirst}},
	}})
	return b.Mesh()
}

func routeText(kind, spec, status string) string {
	return fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: %s, metadata: {name: web, namespace: shop, generation: 3}, spec: %s, status: %s}", kind, spec, status)
}

// entries returns the conditions in our entries of a status, as "name type status reason: message", and the
// controllers of all other entries.
func entries(t *testing.T, u *unstructured.Unstructured) (out []string) {
	t.Helper()
	type entry struct {
		ParentRef, AncestorRef struct{ Name string }
		ControllerName         string
		Conditions             []metav1.Condition
	}
	var r struct{ Parents, Ancestors []entry }
	raw, err := json.Marshal(u.Object["status"])
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range append(r.Parents, r.Ancestors...) {
		if e.ControllerName != ControllerName {
			out = append(out, "of "+e.ControllerName)
			continue
		}
		for _, c := range e.Conditions {
			if c.LastTransitionTime.IsZero() {
				t.Errorf("condition %+v", c)
			}
			line := fmt.Sprintf("%s %s %s %s", e.ParentRef.Name+e.AncestorRef.Name, c.Type, c.Status, c.Reason)
			if c.ObservedGeneration != 3 {
				line += fmt.Sprintf(" of %d", c.ObservedGeneration)
			}
			out = append(out, line+": "+c.Message)
		}
	}
	return out
}

// ours returns the conditions in our entries, without their messages.
func ours(t *testing.T, u *unstructured.Unstructured) []string {
	t.Helper()
	out := entries(t, u)
	for i := range out {
		out[i], _, _ = strings.Cut(out[i], ": ")
	}
	return out
}

const webParent = `{group: "", kind: Service, name: web}`

func TestTheStatusOfARoute(t *testing.T) {
	const istio = `{parents: [{parentRef: {group: "", kind: Service, name: web}, controllerName: istio.io/gateway-controller, conditions: []}]}`
	for name, tt := range map[string]struct {
		kind, spec, status string
		want               []string // nil: no status is written
	}{
		"a route that is used":          {"HTTPRoute", `{parentRefs: [` + webParent + `], rules: [{backendRefs: [{name: web, port: 80}]}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs"}},
		"by the port's name":            {"HTTPRoute", `{parentRefs: [{group: "", kind: Service, name: web, sectionName: http, port: 80}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs"}},
		"no such Service":               {"HTTPRoute", `{parentRefs: [{group: "", kind: Service, name: none}]}`, `{}`, []string{"none Accepted False NoMatchingParent", "none ResolvedRefs True ResolvedRefs"}},
		"no such port":                  {"HTTPRoute", `{parentRefs: [{group: "", kind: Service, name: web, port: 81}]}`, `{}`, []string{"web Accepted False NoMatchingParent", "web ResolvedRefs True ResolvedRefs"}},
		"no such backend":               {"HTTPRoute", `{parentRefs: [` + webParent + `], rules: [{backendRefs: [{name: next, port: 80}]}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs False BackendNotFound"}},
		"no such mirror":                {"HTTPRoute", `{parentRefs: [` + webParent + `], rules: [{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: next, port: 80}}}]}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs False BackendNotFound"}},
		"a backend of another kind":     {"HTTPRoute", `{parentRefs: [` + webParent + `], rules: [{backendRefs: [{kind: Bucket, name: web, port: 80}]}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs False InvalidKind"}},
		"a backend of UDP":              {"HTTPRoute", `{parentRefs: [` + webParent + `], rules: [{backendRefs: [{name: log, port: 514}]}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs False UnsupportedProtocol"}},
		"a backend without a grant":     {"HTTPRoute", `{parentRefs: [` + webParent + `], rules: [{backendRefs: [{name: web, namespace: pay, port: 80}]}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs False RefNotPermitted"}},
		"a backend with a grant":        {"GRPCRoute", `{parentRefs: [` + webParent + `], rules: [{backendRefs: [{name: web, namespace: pay, port: 80}]}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs"}},
		"a parent that may not be seen": {"HTTPRoute", `{parentRefs: [{group: "", kind: Service, name: web, namespace: bank}]}`, `{}`, []string{"web Accepted False NoMatchingParent", "web ResolvedRefs True ResolvedRefs"}},
		"a parent of another namespace": {"HTTPRoute", `{parentRefs: [{group: "", kind: Service, name: web, namespace: pay}], rules: [{backendRefs: [{name: web, namespace: pay, port: 80}]}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs"}},
		"a port of bytes":               {"HTTPRoute", `{parentRefs: [{group: "", kind: Service, name: web, port: 3306}]}`, `{}`, []string{"web Accepted False NoMatchingParent", "web ResolvedRefs True ResolvedRefs"}},
		"a port that is another one's":  {"HTTPRoute", `{parentRefs: [{group: "", kind: Service, name: web, sectionName: calls, port: 80}]}`, `{}`, []string{"web Accepted False NoMatchingParent", "web ResolvedRefs True ResolvedRefs"}},
		"two parents, by port":          {"HTTPRoute", `{parentRefs: [{group: "", kind: Service, name: web, port: 80}, {group: "", kind: Service, name: web, port: 81}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs", "web Accepted False NoMatchingParent", "web ResolvedRefs True ResolvedRefs"}},
		"a GRPCRoute":                   {"GRPCRoute", `{parentRefs: [` + webParent + `], rules: [{matches: [{method: {service: a.B}}], backendRefs: [{name: web, port: 90}]}]}`, `{}`, []string{"web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs"}},
		"a GRPCRoute with a wrong name": {"GRPCRoute", `{parentRefs: [` + webParent + `], rules: [{matches: [{method: {service: a/B}}]}]}`, `{}`, []string{"web Accepted False UnsupportedValue", "web ResolvedRefs True ResolvedRefs"}},
		"what is not supported":         {"HTTPRoute", `{parentRefs: [` + webParent + `], rules: [{sessionPersistence: {}}]}`, `{}`, []string{"web Accepted False UnsupportedValue", "web ResolvedRefs True ResolvedRefs"}},
		"two parents, one a Gateway": {"HTTPRoute", `{parentRefs: [{name: edge}, ` + webParent + `]}`, `{}`,
			[]string{"web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs"}},
		"of a Gateway alone":         {"HTTPRoute", `{parentRefs: [{name: edge}]}`, `{}`, nil},
		"beside another controller":  {"HTTPRoute", `{parentRefs: [` + webParent + `]}`, istio, []string{"of istio.io/gateway-controller", "web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs"}},
		"a parent that is no more":   {"HTTPRoute", `{parentRefs: [{name: edge}]}`, `{parents: [{parentRef: ` + webParent + `, controllerName: outrider.dev/outriderd, conditions: []}]}`, []string{}},
		"another controller's alone": {"HTTPRoute", `{parentRefs: [{name: edge}]}`, istio, nil},
		"a form that is not known":   {"HTTPRoute", `{parentRefs: web}`, `{}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := &routeObject{kind{name: mesh.Kind(tt.kind)}, routeOf(t, routeText(tt.kind, tt.spec, tt.status))}
			before := r.object.DeepCopy()
			got, err := r.judged(shopMesh(), time.Now())
			if err != nil || (got == nil) != (tt.want == nil) {
				t.Fatalf("%v, %v; want %v", got, err, tt.want)
			}
			if got == nil {
				return
			}
			if have := ours(t, got); !slices.Equal(have, tt.want) {
				t.Errorf("%q, want %q", have, tt.want)
			}
			if fmt.Sprint(before) != fmt.Sprint(r.object) {
				t.Error("the object of the cache was changed")
			}
			r.object = got
			if again, err := r.judged(shopMesh(), time.Now().Add(time.Hour)); again != nil || err != nil {
				t.Errorf("it is written again: %v, %v", again, err)
			}
		})
	}
}

// The status of a route also depends on other routes and on the route's last valid version.
func TestTheStatusOfARouteAmongOthers(t *testing.T) {
	web := []mesh.Parent{{Namespace: "shop", Name: "web"}}
	used := &mesh.RouteSpec{Namespace: "shop", Name: "web", Generation: 2, Parents: web, Rules: []mesh.Route{{}}}
	calls := &mesh.RouteSpec{Namespace: "shop", Name: "calls", GRPC: true, Parents: []mesh.Parent{{Namespace: "shop", Name: "web", Port: 90}}, Rules: []mesh.Route{{}}}
	large := *used
	large.Rules = []mesh.Route{{Filters: []mesh.Filter{{Rewrite: &mesh.Rewrite{Path: &mesh.PathChange{Full: strings.Repeat("/", 1<<20)}}}}}}
	for name, tt := range map[string]struct {
		parts []mesh.Part
		spec  string
		want  []string
	}{
		"all rules invalid":           {[]mesh.Part{used}, `{parentRefs: [` + webParent + `], rules: [{sessionPersistence: {}}]}`, []string{"web Accepted False UnsupportedValue", "web ResolvedRefs True ResolvedRefs"}},
		"one of two rules invalid":    {[]mesh.Part{used}, `{parentRefs: [` + webParent + `], rules: [{sessionPersistence: {}}, {}]}`, []string{"web Accepted True Accepted of 2", "web PartiallyInvalid True UnsupportedValue", "web ResolvedRefs True ResolvedRefs"}},
		"none was ever valid":         {nil, `{parentRefs: [` + webParent + `], rules: [{sessionPersistence: {}}, {}]}`, []string{"web Accepted False UnsupportedValue", "web ResolvedRefs True ResolvedRefs"}},
		"beside a GRPCRoute":          {[]mesh.Part{used, calls}, `{parentRefs: [{group: "", kind: Service, name: web, port: 90}]}`, []string{"web Accepted False Conflicted", "web ResolvedRefs True ResolvedRefs"}},
		"on another port than it":     {[]mesh.Part{used, calls}, `{parentRefs: [{group: "", kind: Service, name: web, port: 80}]}`, []string{"web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs"}},
		"on more ports than it":       {[]mesh.Part{used, calls}, `{parentRefs: [` + webParent + `]}`, []string{"web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs"}},
		"more than fits on a Service": {[]mesh.Part{&large}, `{parentRefs: [` + webParent + `]}`, []string{"web Accepted False UnsupportedValue", "web ResolvedRefs True ResolvedRefs"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &routeObject{kind{name: mesh.KindRoute}, routeOf(t, routeText("HTTPRoute", tt.spec, `{}`))}
			m := shopMesh(tt.parts...)
			got, err := r.judged(m, time.Now())
			if err != nil || got == nil {
				t.Fatalf("%v, %v", got, err)
			}
			if have := ours(t, got); !slices.Equal(have, tt.want) {
				t.Errorf("%q, want %q", have, tt.want)
			}
			r.object = got
			if again, err := r.judged(m, time.Now().Add(time.Hour)); again != nil || err != nil {
				t.Errorf("it is written again: %v, %v", again, err)
			}
			// Once the route is valid, its status no longer contains the problem.
			next := routeOf(t, routeText("HTTPRoute", `{parentRefs: [`+webParent+`]}`, `{}`))
			next.Object["status"] = got.Object["status"]
			r.object = next
			if got, err = r.judged(shopMesh(), time.Now()); err != nil {
				t.Fatal(err)
			}
			if got == nil {
				got = next
			}
			if have, want := ours(t, got), []string{"web Accepted True Accepted", "web ResolvedRefs True ResolvedRefs"}; len(have) != 2 || have[0] != want[0] || have[1] != want[1] {
				t.Errorf("later %q, want %q", have, want)
			}
		})
	}
}
