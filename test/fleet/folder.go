package fleet

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// perFile is the number of services in a file, about as many as one team maintains.
const perFile = 100

// WriteFolder writes the files of a mesh: services with two endpoints each, and a pod for each proxy.
func WriteFolder(dir string, services, pods int) error {
	for first := 0; first < services; first += perFile {
		if err := writeServices(dir, first, min(first+perFile, services)); err != nil {
			return err
		}
	}
	var b strings.Builder
	for i := range pods {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Pod
metadata: {name: app-%d, namespace: %s, labels: {app: app-%d, security.istio.io/tlsMode: istio}}
spec:
  serviceAccountName: %s
  containers: [{name: app, ports: [{name: http, containerPort: 8080}]}]
status: {phase: Running, podIP: %[5]s, podIPs: [{ip: %[5]s}]}
`, i, namespace, deployment(i), account(i), podIP(i))
	}
	return os.WriteFile(filepath.Join(dir, "pods.yaml"), []byte(b.String()), 0o644)
}

func writeServices(dir string, first, end int) error {
	var b strings.Builder
	for i := first; i < end; i++ {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: service-%[1]d, namespace: team-%[2]d}
spec:
  clusterIP: %[3]s
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: service-%[1]d-1, namespace: team-%[2]d, labels: {kubernetes.io/service-name: service-%[1]d}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [%[4]q], conditions: {ready: true}}, {addresses: [%[5]q], conditions: {ready: true}}]
`, i, i%50, serviceIP(i), offset("10.128.0.1", 2*i), offset("10.128.0.1", 2*i+1))
	}
	return os.WriteFile(filepath.Join(dir, fmt.Sprintf("services-%05d.yaml", first)), []byte(b.String()), 0o644)
}

// Names and addresses in the mesh.
const (
	namespace = "demo"
	// TrustDomain is the trust domain of the proxies' certificates.
	TrustDomain = "cluster.local"
)

// podsOf is the number of pods in a deployment. The pods of a deployment share a service account, and the control
// plane sends them the same prewarmed clusters.
const podsOf = 10

func deployment(proxy int) int     { return proxy / podsOf }
func account(proxy int) string     { return fmt.Sprintf("app-%d", deployment(proxy)) }
func podIP(proxy int) string       { return offset("10.64.0.1", proxy) }
func serviceIP(service int) string { return offset("10.97.0.1", service) }

// clusterOf returns the name of the cluster to which Envoy subscribes when the application calls a service's
// address. endpointsOf returns the name of the service's endpoints.
func clusterOf(service int) string { return "http|" + serviceIP(service) + ":80" }
func endpointsOf(service int) string {
	return fmt.Sprintf("outbound|80||service-%d.team-%d.svc.cluster.local", service, service%50)
}

// offset adds n to an IPv4 address.
func offset(from string, n int) string {
	a := netip.MustParseAddr(from).As4()
	sum := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	sum += uint32(n)
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}).String()
}
