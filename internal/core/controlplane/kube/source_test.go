package kube

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
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

// fed returns a source that watches nothing, and its store for services, to which a test adds objects.
func fed() (*Source, *store[known]) {
	s := &Source{
		dirty:   make(chan struct{}, 1),
		builder: build.New(mesh.Config{}), invalid: map[mesh.Key]string{}, kept: map[mesh.Key]*mesh.WorkloadSpec{},
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

// If a pod stops being ready, [mesh.WorkloadSpec.Kept] is set for a while, even if it becomes ready again
// before its EndpointSlices are updated. Other changes of the pod do not extend that time.
func TestKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := fed()
		pods, slices := s.storeOf(kindOf(mesh.KindPod)), s.storeOf(kindOf(mesh.KindSlice))
		s.storeOf(kindOf(mesh.KindService)).Add(named("web", 80))
		no, number := false, int32(80)
		slices.Add(&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &number}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}}},
		})
		version := 0
		change := func(ready corev1.ConditionStatus) {
			version++
			_ = pods.Update(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Annotations: map[string]string{"version": fmt.Sprint(version)}},
				Status: corev1.PodStatus{PodIP: "10.1.0.1", Phase: corev1.PodRunning,
					Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Unix(1060, 0)}},
					ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1000, 0)}}}}},
			})
		}
		want := func(when string, kept bool) {
			t.Helper()
			synctest.Wait()
			s.publish()
			m, _ := s.Current()
			if got := m.ByName("shop", "web").Endpoints[0].Kept; got != kept {
				t.Errorf("%s: kept %t, want %t", when, got, kept)
			}
		}
		change(corev1.ConditionTrue)
		want("ready", false)
		change(corev1.ConditionFalse)
		want("no longer ready", true)
		time.Sleep(keptFor / 2)
		change(corev1.ConditionFalse)
		want("likewise, after a change of something else", true)
		time.Sleep(keptFor / 2)
		want("after the time", false)
		change(corev1.ConditionFalse)
		want("after another change of something else", false)
		change(corev1.ConditionTrue)
		want("ready again", true)
		time.Sleep(keptFor)
		want("ready for the time", false)
		change(corev1.ConditionFalse)
		want("no longer ready again", true)
		_ = pods.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}})
		want("gone", false)
		time.Sleep(2 * keptFor)
		want("gone for long", false)
		if len(s.kept) > 0 {
			t.Errorf("%d pods are remembered", len(s.kept))
		}
	})
}
