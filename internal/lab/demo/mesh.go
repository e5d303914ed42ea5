package demo

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// These are the name and addresses of the configuration server in the mesh.
const (
	centreHost = "config-centre.demo.svc.cluster.local"
	centreIP   = "10.96.0.10"
	centrePort = 9080
)

// writeMesh writes the Services and EndpointSlices of a mesh into a folder: those of the configuration server,
// and the given number of others. Nothing calls the others; they only slow down a proxy that fetches all
// services.
func writeMesh(dir string, services int, node netip.Addr) error {
	var b strings.Builder
	service(&b, "demo", "config-centre", centreIP, fmt.Sprintf("[{addresses: [%q], conditions: {ready: true}}]", node), 80, centrePort)
	next := netip.MustParseAddr("10.97.0.1")
	pod := netip.MustParseAddr("10.128.0.1")
	for i := range services {
		a, c := pod, pod.Next()
		endpoints := fmt.Sprintf("[{addresses: [%q], conditions: {ready: true}}, {addresses: [%q], conditions: {ready: true}}]", a, c)
		service(&b, fmt.Sprintf("team-%d", i%50), fmt.Sprintf("service-%d", i), next.String(), endpoints, 80, 8080)
		next, pod = next.Next(), c.Next()
	}
	return os.WriteFile(filepath.Join(dir, "mesh.yaml"), []byte(b.String()), 0o644)
}

func service(b *strings.Builder, namespace, name, ip, endpoints string, port, target int) {
	fmt.Fprintf(b, `---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  clusterIP: %[3]s
  ports: [{name: http, port: %[5]d, targetPort: %[6]d}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: %[6]d}]
endpoints: %[4]s
`, name, namespace, ip, endpoints, port, target)
}

// writePod writes the pod into the folder of the mesh, from where the control plane reads it.
func writePod(dir, name string, ip netip.Addr) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: demo
  labels: {app: awesome, security.istio.io/tlsMode: istio}
spec:
  serviceAccountName: awesome
  containers: [{name: awesome-app, ports: [{name: http, containerPort: 8080}]}]
status: {phase: Running, podIP: %s, podIPs: [{ip: %s}]}
`, name, ip, ip)
	temporary := filepath.Join(dir, "."+name)
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, name+".yaml"))
}
