package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"outrider.dev/internal/mesh"
)

func kindOf(name mesh.Kind) kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	panic("no kind " + name)
}

func route(namespace string, fields map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"parentRefs": []any{map[string]any{"group": "", "kind": "Service", "name": "web"}}}
	for k, v := range fields {
		spec[k] = v
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
		"metadata": map[string]any{"namespace": namespace, "name": "r"}, "spec": spec,
	}}
}

func TestObjectsOfDefinitionsThatMayBeNewer(t *testing.T) {
	k := kindOf(mesh.KindRoute)
	p, err := k.part(route("shop", map[string]any{"ofTheFuture": map[string]any{"a": int64(1)}}))
	if r, ok := p.(*mesh.RouteSpec); err != nil || !ok || len(r.Parents) != 1 || r.Parents[0].Name != "web" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := k.part(route("shop", map[string]any{"rules": "none"})); err == nil || !strings.Contains(err.Error(), "does not match version v1") {
		t.Errorf("rules that are a text: %v", err)
	}
	if p, err := k.part(route("shop", map[string]any{"parentRefs": []any{}})); p != nil || err != nil {
		t.Errorf("a gateway's route: %v, %v; want none", p, err)
	}
	if _, err := k.part(&corev1.Service{}); err == nil {
		t.Error("a service is taken for a route")
	}
	if _, err := kindOf(mesh.KindPod).part(route("shop", nil)); err == nil {
		t.Error("a route is taken for a pod")
	}
}

func named(name string, port int32) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}}}
}

// fed returns a source without watches, and the store of its services.
func fed() (*Source, *store[known]) {
	s := &Source{
		dirty:   make(chan struct{}, 1),
		builder: mesh.NewBuilder(mesh.Config{}), invalid: map[mesh.Key]string{},
	}
	s.Publish(s.builder.Mesh(), nil)
	return s, s.storeOf(kindOf(mesh.KindService))
}

func TestAMistakeTakesNothingAway(t *testing.T) {
	s, to := fed()
	want := func(when string, port uint16, problems ...string) {
		t.Helper()
		s.publish()
		m, _ := s.Current()
		var got uint16
		if web := m.ByName("shop", "web"); web != nil {
			got = web.Ports[0].Number
		}
		found, _ := s.Problems()
		if got != port || strings.Join(found, "\n") != strings.Join(problems, "\n") {
			t.Errorf("%s: port %d, problems %q; want %d, %q", when, got, found, port, problems)
		}
	}
	to.Add(named("web", 80))
	want("good", 80)
	before, _ := s.Current()
	heartbeat := named("web", 80)
	heartbeat.ResourceVersion = "2"
	to.Update(heartbeat)
	want("touched", 80)
	if after, _ := s.Current(); after != before {
		t.Error("a change that the mesh does not depend on made another mesh")
	}
	to.Update(named("web", 0))
	want("wrong", 80, "Service shop/web: spec.ports[0].port: 0 is not a port: must be 1 to 65535")
	to.Update(named("web", 81))
	want("right", 81)
	to.Update(named("web", -1))
	to.Delete(named("web", 0))
	want("gone", 0)
	to.Add(named("web", -1))
	want("wrong from the start", 0, "Service shop/web: spec.ports[0].port: -1 is not a port: must be 1 to 65535")
}
