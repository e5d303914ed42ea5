package kube

import (
	"fmt"
	"strings"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/kube"
)

// Of two replicas, the holder of the Lease writes the status of routes. It writes once for each change, and does not
// change the entries of other controllers. When the holder stops, or loses its connection to the API server, the
// other replica takes over.
func TestTheStatusOfRoutes(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	w.withoutAuthority(t)
	w.CoordinationV1().Leases(own).Delete(t.Context(), contract.RouteStatusLease, metav1.DeleteOptions{})
	apply(t, gatewayDefinitions(t))
	t.Cleanup(w.undefine(gatewayKinds...))
	w.namespace(t, "routes", nil)
	lines := []*gap{newGap(t, w), newGap(t, w)}
	all := []*replica{w.replica(t, contract.AuthoritySecret, lines[0].through).serves(t), w.replica(t, contract.AuthoritySecret, lines[1].through).serves(t)}
	apply(t, `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: web, namespace: routes}, spec: {parentRefs: [{group: "", kind: Service, name: web}]}}`)
	conditions := func() string {
		return kubectl(t, "", "get", "httproute", "web", "-n", "routes", `--output=jsonpath={range .status.parents[?(@.controllerName=="`+kube.ControllerName+`")].conditions[*]}{.type} {.status} {.reason}, {end}`)
	}
	version := func() string {
		return kubectl(t, "", "get", "httproute", "web", "-n", "routes", "--output=jsonpath={.metadata.resourceVersion}")
	}
	is := func(want string) {
		t.Helper()
		until(t, want, func() bool { return conditions() == want }, func() string { return conditions() + "\n" + logs(all...)() })
	}
	holder := func() string {
		l, err := w.CoordinationV1().Leases(own).Get(t.Context(), contract.RouteStatusLease, metav1.GetOptions{})
		if err != nil || l.Spec.HolderIdentity == nil {
			l = &coordination.Lease{Spec: coordination.LeaseSpec{HolderIdentity: new("")}}
		}
		return *l.Spec.HolderIdentity
	}
	is("Accepted False NoMatchingParent, ResolvedRefs True ResolvedRefs, ")

	// Add the entry of another controller, which must stay.
	kubectl(t, "", "patch", "httproute", "web", "-n", "routes", "--subresource=status", "--type=json", `--patch=[{"op":"add","path":"/status/parents/0","value":{"parentRef":{"group":"","kind":"Service","name":"web"},"controllerName":"example.com/mesh","conditions":[{"type":"Accepted","status":"True","reason":"Accepted","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}]`)
	kubectl(t, "", "create", "service", "clusterip", "web", "--tcp=80", "-n", "routes")
	is("Accepted True Accepted, ResolvedRefs True ResolvedRefs, ")
	if got := kubectl(t, "", "get", "httproute", "web", "-n", "routes", "--output=jsonpath={.status.parents[*].controllerName}"); !strings.Contains(got, "example.com/mesh") {
		t.Errorf("entries of %s", got)
	}

	// A change of the mesh that does not change the status causes no write. Only the last of these Services changes
	// the status, so until then the version must stay the same.
	before := version()
	for i := range 3 {
		kubectl(t, "", "create", "service", "clusterip", fmt.Sprintf("other-%d", i), "--tcp=80", "-n", "routes")
	}
	apply(t, `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: last, namespace: routes}, spec: {parentRefs: [{group: "", kind: Service, name: other-2}]}}`)
	until(t, "a route of the last Service", func() bool {
		return strings.Contains(kubectl(t, "", "get", "httproute", "last", "-n", "routes", "--output=jsonpath={.status}"), `"reason":"Accepted"`)
	}, logs(all...), all...)
	if now := version(); now != before {
		t.Errorf("the route was at version %s, and is at %s", before, now)
	}
	kubectl(t, "", "patch", "httproute", "web", "-n", "routes", "--type=merge", `--patch={"spec":{"rules":[{"backendRefs":[{"name":"other-2","port":80}]}]}}`)
	observed := func() string {
		return kubectl(t, "", "get", "httproute", "web", "-n", "routes", `--output=jsonpath={.metadata.generation} {.status.parents[?(@.controllerName=="`+kube.ControllerName+`")].conditions[0].observedGeneration}`)
	}
	until(t, "the new generation is observed", func() bool { return observed() == "2 2" }, observed)

	// Cut the holder off from the API server: its Lease expires, and the other replica writes.
	first := holder()
	lines[newest(all, "this replica writes the status of routes")].cut()
	until(t, "another holder", func() bool { h := holder(); return h != "" && h != first }, logs(all...))
	kubectl(t, "", "delete", "service", "web", "-n", "routes")
	is("Accepted False NoMatchingParent, ResolvedRefs True ResolvedRefs, ")
	if lease, err := w.CoordinationV1().Leases(own).Get(t.Context(), contract.RouteStatusLease, metav1.GetOptions{}); err != nil || lease.Labels[contract.MadeByLabel] != "outriderd" {
		t.Errorf("the Lease has no label by which a purge finds it: %v, %v", lease, err)
	}
}

// newest returns the index of the replica that has logged this text last. Both may have logged it, because a slow
// replica may lose the Lease to the other.
func newest(all []*replica, text string) (found int) {
	var last string // the latest line; lines begin with their time
	for i, r := range all {
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, text) && line > last {
				found, last = i, line
			}
		}
	}
	return found
}
