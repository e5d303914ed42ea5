package kube

import (
	"slices"
	"strings"
	"testing"

	api "k8s.io/client-go/tools/clientcmd/api"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

// If the cluster has the definition of another mesh's kind, its objects are reported as problems. Objects that would
// protect a workload are also reported as notes on the workload's proxy. When an object is changed or deleted, its
// reports disappear.
func TestObjectsThatAreIgnored(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	w.namespace(t, "guarded", nil)
	const policies, routes = "requestauthentications.security.istio.io", "virtualservices.networking.istio.io"
	t.Cleanup(w.undefine(policies, routes))
	apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: guarded, labels: {app: web}}, spec: {schedulerName: none, serviceAccountName: default,
		containers: [{name: web, image: none}, {name: `+contract.ProxyContainer+`, image: none}]}}`)
	var j journal
	c := w.connect(t, &j, func(c *api.Cluster, a *api.AuthInfo) { outriderd(c, a) })
	s := c.Source(t.Context(), mesh.Config{})
	until(t, "synced without the definitions", func() bool { return closed(s.Synced()) }, j.String)
	configurations := resource.New(s)
	want := func(what string, problems, notes []string) {
		t.Helper()
		matches := func(all, prefixes []string) bool {
			return len(all) == len(prefixes) && !slices.ContainsFunc(prefixes, func(p string) bool {
				return !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, p) })
			})
		}
		var p, n []string
		until(t, what, func() bool {
			p, _ = s.Problems()
			v, _ := configurations.Current()
			n = v.(interface {
				Notes(*xds.Proxy, []string, []string) []string
			}).Notes(&xds.Proxy{ID: "sidecar~10.9.9.9~web.guarded~x", Namespace: "guarded", ServiceAccount: "default",
				Metadata: map[string]string{contract.MetadataCertificates: "/c"}}, nil, nil)
			return matches(p, problems) && matches(n, notes)
		}, func() string { return strings.Join(append(p, n...), "\n") + "\n" + j.String() })
	}
	policy := func(app string) string {
		return "{apiVersion: security.istio.io/v1beta1, kind: RequestAuthentication, metadata: {name: deny, namespace: guarded}, spec: {selector: {matchLabels: {app: " + app + "}}}}"
	}
	const (
		route   = "{apiVersion: networking.istio.io/v1beta1, kind: VirtualService, metadata: {name: web, namespace: guarded}, spec: {hosts: [web]}}"
		denied  = "error: RequestAuthentication guarded/deny: is not enforced by Outrider: "
		without = "warning: VirtualService guarded/web: has no effect on pods of Outrider: "
	)
	want("nothing is ignored", nil, nil)
	for range 2 {
		apply(t, definition("security.istio.io", "RequestAuthentication", "requestauthentications")+"---"+definition("networking.istio.io", "VirtualService", "virtualservices"))
		apply(t, policy("web")+"\n---\n"+route)
		want("both are reported", []string{denied, without}, []string{denied})
		apply(t, policy("other"))
		want("the policy is for no pod of ours", []string{without}, nil)
		apply(t, policy("web"))
		want("it is again", []string{denied, without}, []string{denied})
		kubectl(t, "", "delete", "requestauthentications.security.istio.io", "deny", "--namespace=guarded")
		want("it is deleted", []string{without}, nil)
		apply(t, policy("web"))
		want("it is there once more", []string{denied, without}, []string{denied})
		kubectl(t, "", "delete", "crd", policies, routes)
		want("their definitions are gone", nil, nil)
	}
	for line := range strings.Lines(j.String()) { // ignores lines of client-go, which may come from clients of other tests
		if (strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")) && (strings.Contains(line, policies) || strings.Contains(line, routes)) {
			t.Errorf("the log of a definition that comes and goes: %s", line)
		}
	}

	// Connect with a role of an older version, which does not allow reading these kinds.
	w.may(t, "old", w.roles(t, "outriderd", "outriderd-mesh"))
	w.allowed(t, "roles", "old", accessOf(w.roles(t, "outriderd-mesh")[0]))
	s = w.connect(t, &j, as("roles", "old")).Source(t.Context(), mesh.Config{})
	until(t, "synced by the old role", func() bool { return closed(s.Synced()) }, j.String)
	configurations = resource.New(s)
	want("it is said what is not known", []string{"warning: not known whether objects of other meshes are ignored, because outriderd may not read "}, nil)
}
