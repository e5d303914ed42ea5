package kube

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/chart"
	"outrider.dev/test/cluster"
)

// peerAuthentications is Istio's CustomResourceDefinition, reduced to the fields that Outrider reads.
const peerAuthentications = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: peerauthentications.security.istio.io}
spec:
  group: security.istio.io
  scope: Namespaced
  names: {kind: PeerAuthentication, plural: peerauthentications, singular: peerauthentication}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// gatewayKinds lists the CustomResourceDefinitions of the Gateway API whose objects outriderd reads.
var gatewayKinds = []string{"httproutes.gateway.networking.k8s.io", "grpcroutes.gateway.networking.k8s.io", "referencegrants.gateway.networking.k8s.io"}

// gatewayDefinitions returns these CustomResourceDefinitions as the Gateway API publishes them.
func gatewayDefinitions(t *testing.T) string {
	t.Helper()
	return gatewayDefinitionsOf(t, "standard", gatewayKinds...)
}

func gatewayDefinitionsOf(t *testing.T, channel string, names ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	must(t, err)
	var all []string
	for _, name := range names {
		resource, group, _ := strings.Cut(name, ".")
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "config", "crd", channel, group+"_"+resource+".yaml"))
		must(t, err)
		all = append(all, string(text))
	}
	return strings.Join(all, "---\n")
}

// policyKinds lists the CustomResourceDefinitions of policies for Services.
var policyKinds = []string{"backendpolicies.outrider.dev", "xbackendtrafficpolicies.gateway.networking.x-k8s.io"}

// policyDefinitions returns the definitions of policyKinds, from the chart and from the Gateway API.
func policyDefinitions(t *testing.T) string {
	t.Helper()
	all, err := chart.Definitions()
	must(t, err)
	return all["backendpolicies"] + "\n---\n" + gatewayDefinitionsOf(t, "experimental", policyKinds[1])
}

func hosts(t *testing.T) string {
	t.Helper()
	all, err := chart.Definitions()
	must(t, err)
	return all["hosts"]
}

const shop = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, security.istio.io/tlsMode: istio}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: "` + cluster.BaseImage + `", command: [sleep, 1h], ports: [{name: http, containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: done, namespace: shop}
spec:
  restartPolicy: Never
  containers: [{name: job, image: "` + cluster.BaseImage + `", command: ["true"]}]
`

const extras = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{group: "", kind: Service, name: web, port: 80}]
  rules: [{backendRefs: [{name: web, port: 80}], timeouts: {request: 7s}}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: shop}
spec: {mtls: {mode: STRICT}}
---
apiVersion: outrider.dev/v1
kind: Host
metadata: {name: vm, namespace: shop}
spec: {address: 192.168.7.7, serviceAccount: vm}
`

func theClusterIsTheMesh(t *testing.T) {
	w := enterWorld(t)
	w.namespace(t, "shop", nil)
	apply(t, shop)
	var j journal
	l := newGap(t, w)
	c := w.connect(t, &j, func(c *api.Cluster, a *api.AuthInfo) { outriderd(c, a); l.through(c, a) })
	s := c.Source(t.Context(), mesh.Config{})
	until(t, "synced", func() bool { return closed(s.Synced()) }, func() string { return strings.Join(c.Trouble(), "\n") + j.String() })
	current := func() *mesh.Mesh { m, _ := s.Current(); return m }
	text := func() string {
		m := current()
		raw, err := yaml.Marshal([]any{m.Services(), m.Workloads()})
		must(t, err)
		return string(raw) + j.String()
	}
	if m := current(); m.ByName("default", "kubernetes") == nil || m.ByName("shop", "web") == nil || m.ByName("kube-system", "kube-dns") == nil {
		t.Errorf("synced, and not whole:\n%s", text())
	}
	ready := func(m *mesh.Mesh) (out []mesh.Endpoint) {
		for _, e := range m.ByName("shop", "web").Endpoints {
			if e.Ready && e.Workload != nil {
				out = append(out, e)
			}
		}
		return out
	}
	is := func(m *mesh.Mesh, mode mesh.TLSMode) bool {
		all := ready(m)
		return len(all) > 0 && all[0].Workload.TLS == mode
	}
	until(t, "both pods are behind their service", func() bool { return len(ready(current())) == 2 }, text)
	m := current() // a single mesh for all comparisons below, because each mesh has its own Workload values
	for _, e := range ready(m) {
		if w := e.Workload; e.Port != 8080 || w.Namespace != "shop" || !w.Proxied || w.Node == "" || m.Workload(e.Addr, "") != w {
			t.Errorf("endpoint %+v of workload %+v", e, w)
		}
	}
	until(t, "the pod that ended is none", func() bool {
		p, err := w.CoreV1().Pods("shop").Get(t.Context(), "done", metav1.GetOptions{})
		must(t, err)
		return p.Status.Phase == corev1.PodSucceeded && current().Pod("shop", "done") == nil
	}, text)

	// Objects of a kind are part of the mesh only while the cluster has its definition.
	for range 2 {
		apply(t, hosts(t)+"---\n"+peerAuthentications+"---\n"+gatewayDefinitions(t))
		apply(t, extras)
		until(t, "route, policy and host are there", func() bool {
			m := current()
			routes, host := m.ByName("shop", "web").Routes, m.Host("shop", "vm")
			return len(routes) == 1 && routes[0].Timeout == 7*time.Second && is(m, mesh.Strict) &&
				host != nil && host.ServiceAccount == "vm" && host.Addresses[0] == netip.MustParseAddr("192.168.7.7")
		}, text)
		kubectl(t, "", append([]string{"delete", "crd", "hosts.outrider.dev", "peerauthentications.security.istio.io"}, gatewayKinds...)...)
		until(t, "they are gone", func() bool {
			m := current()
			return len(m.ByName("shop", "web").Routes) == 0 && m.Host("shop", "vm") == nil && is(m, mesh.Permissive)
		}, text)
	}

	// A definition that lacks the version that Outrider reads is reported, and does not delay the mesh.
	older := strings.ReplaceAll(peerAuthentications, "name: v1\n", "name: v1beta1\n")
	apply(t, older)
	const versions = "the CustomResourceDefinition peerauthentications.security.istio.io is there, but serves no version v1"
	until(t, versions, func() bool { return strings.Join(c.Trouble(), "\n") == versions }, text)
	apply(t, older+"  - {name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n")
	until(t, "it serves our version now", func() bool { return len(c.Trouble()) == 0 }, text)
	kubectl(t, "", "delete", "crd", "peerauthentications.security.istio.io")
	until(t, "it does not matter any more", func() bool { return len(c.Trouble()) == 0 }, text)

	// An invalid object is reported as a problem, and has no other effect.
	apply(t, hosts(t))
	host := func(address string) string {
		return "{apiVersion: outrider.dev/v1, kind: Host, metadata: {name: vm, namespace: shop}, spec: {address: " + address + "}}"
	}
	apply(t, host("192.168.7.8"))
	until(t, "the host", func() bool { return current().Host("shop", "vm") != nil }, text)
	apply(t, host("nowhere"))
	problems := func() []string { p, _ := s.Problems(); return p }
	until(t, "the mistake is reported", func() bool { return len(problems()) == 1 }, text)
	if got, want := problems()[0], `Host shop/vm: spec.address: "nowhere" is not an IP address such as 10.0.0.1 or 2001:db8::1`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if h := current().Host("shop", "vm"); h == nil || h.Addresses[0] != netip.MustParseAddr("192.168.7.8") {
		t.Errorf("by the mistake the host is %+v", h)
	}
	kubectl(t, "", "delete", "host", "vm", "--namespace=shop")
	until(t, "host and mistake are gone", func() bool { return current().Host("shop", "vm") == nil && len(problems()) == 0 }, text)

	// Without the API server the mesh stays unchanged. Afterwards it contains the changes made meanwhile.
	l.cut()
	until(t, "there is trouble", func() bool { return len(c.Trouble()) > 0 }, text)
	kubectl(t, "", "delete", "service", "web", "--namespace=shop")
	kubectl(t, "", "create", "service", "clusterip", "later", "--tcp=80", "--namespace=shop")
	if m := current(); m.ByName("shop", "web") == nil || len(ready(m)) != 2 {
		t.Errorf("with the API server away the mesh is\n%s", text())
	}
	l.mend(t)
	until(t, "it has caught up", func() bool {
		return current().ByName("shop", "web") == nil && current().ByName("shop", "later") != nil
	}, text)
	until(t, "the trouble has ended", func() bool { return len(c.Trouble()) == 0 }, func() string { return strings.Join(c.Trouble(), "\n") + j.String() })
	kubectl(t, "", "delete", "crd", "hosts.outrider.dev")
}
