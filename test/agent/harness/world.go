package harness

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// A World is a network, a folder of manifests and, once it is started, a control plane.
type World struct {
	T        testing.TB
	Binaries Binaries
	Dir      string // directory with all files of the world
	Node     *ns.Namespace

	// Settings for the pods that are created after the settings were changed.
	Family    Family
	Capture   []string // added to the flags of capture
	ProxyUser uint32   // default: the constant ProxyUser
	RootFile  string   // file of the trusted roots; default: the control plane's

	pods  int
	lives int // number of times that the control plane was started
	plane *process.Process
}

// A Family is the set of IP families of which the pods have addresses.
type Family int

// IPv4 is the default.
const (
	IPv4 Family = iota
	Dual
	IPv6
)

// New makes a world without a control plane.
func New(t testing.TB) *World {
	t.Helper()
	w := &World{T: t, Binaries: Build(t), Node: ns.New(t)}
	var err error
	if w.Dir, err = os.MkdirTemp("/tmp", "outrider-world"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(w.Dir) })
	for _, err := range []error{os.Chmod(w.Dir, 0o755), os.Mkdir(w.mesh(), 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range []string{PlaneAddress + "/32", planeAddress6 + "/128", otherPlane + "/32"} {
		w.Node.IP("addr", "add", a, "dev", "lo")
	}
	// Connections to unassigned addresses fail at once, as they do with a cluster's router.
	w.Node.IP("route", "add", "unreachable", "10.0.0.0/8")
	w.Node.Do(func() {
		for _, key := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			err = errors.Join(err, os.WriteFile("/proc/sys/net/"+key, []byte("1"), 0))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Run runs a subtest: failures of w fail the subtest, and the processes that w starts during the subtest end with it.
func (w *World) Run(name string, f func(*testing.T)) {
	t, ok := w.T.(*testing.T)
	if !ok {
		w.T.Fatal("only a test has subtests")
	}
	t.Run(name, func(sub *testing.T) {
		w.T = sub
		defer func() { w.T = t }()
		f(sub)
	})
}

func (w *World) mesh() string { return filepath.Join(w.Dir, "mesh") }

// State returns the directory with the files of the control plane's certificate authority and tokens.
func (w *World) State() string { return filepath.Join(w.Dir, "state") }

// Roots returns the path of the file with the trusted roots.
func (w *World) Roots() string { return filepath.Join(w.Dir, "roots.pem") }

// Serve starts the control plane and waits until it serves.
func (w *World) Serve(args ...string) {
	w.T.Helper()
	w.plane = w.servePlane(args...)
	process.Eventually(w.T, "the control plane serves", func() bool { return w.PlaneGet("/ready") != "" }, w.plane)
	root, err := os.ReadFile(cmp.Or(w.RootFile, filepath.Join(w.State(), "ca", "root-cert.pem")))
	if err == nil {
		err = os.WriteFile(w.Roots(), root, 0o644)
	}
	if err != nil {
		w.T.Fatal(err)
	}
}

func (w *World) servePlane(args ...string) *process.Process {
	w.T.Helper()
	w.lives++
	args = append([]string{"serve", "--source", "files:" + w.mesh(), "--state", w.State(), "--name", PlaneName}, args...)
	return process.Start(w.T, exec.Command(w.Binaries.Plane, args...),
		process.Options{In: w.Node.Do, Log: filepath.Join(w.Dir, fmt.Sprintf("plane-%d.log", w.lives))})
}

// Plane returns the control plane's process.
func (w *World) Plane() *process.Process { return w.plane }

// PlaneGet requests a path from the control plane's metrics port; it returns "" unless the status is 200.
func (w *World) PlaneGet(path string) string {
	client := NewClient(w.Node, 0)
	defer client.Close()
	a := client.Get("http://" + planeHTTP + path)
	if a.Err != nil || a.Status != http.StatusOK {
		return ""
	}
	return a.Body
}

// Manifest writes or replaces a file in the manifest folder; an empty text removes it.
func (w *World) Manifest(name, text string) {
	w.T.Helper()
	path := filepath.Join(w.mesh(), name+".yaml")
	if text == "" {
		if err := os.Remove(path); err != nil {
			w.T.Fatal(err)
		}
		return
	}
	fresh := filepath.Join(w.mesh(), "."+name)
	if err := os.WriteFile(fresh, []byte(text), 0o644); err != nil {
		w.T.Fatal(err)
	}
	if err := os.Rename(fresh, path); err != nil {
		w.T.Fatal(err)
	}
}

// Fill adds n services that no one calls, each with a port for HTTP and two endpoints.
func (w *World) Fill(n int) {
	w.T.Helper()
	const each = 1000
	for first := 0; first < n; first += each {
		var b strings.Builder
		for i := first; i < min(n, first+each); i++ {
			fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: filler-%[1]d, namespace: %[2]s}
spec: {clusterIP: 10.100.%[3]d.%[4]d, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: filler-%[1]d, namespace: %[2]s, labels: {kubernetes.io/service-name: filler-%[1]d}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.200.%[3]d.%[4]d]}, {addresses: [10.201.%[3]d.%[4]d]}]
`, i, Namespace, i/250, i%250+1)
		}
		w.Manifest(fmt.Sprintf("filler-%d", first), b.String())
	}
}

// Service adds a service for the pods of an app. Addresses are separated by blanks. Each port is
// "NAME PORT" and has the same target port.
func (w *World) Service(name, addresses, app string, ports ...string) {
	w.T.Helper()
	ips, list := strings.Fields(addresses), []string{}
	for _, p := range ports {
		n, number, _ := strings.Cut(p, " ")
		list = append(list, fmt.Sprintf("{name: %s, port: %s}", n, number))
	}
	w.Manifest("service-"+name, fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s}
spec: {clusterIP: "%s", clusterIPs: ["%s"], selector: {app: %s}, ports: [%s]}
`, name, Namespace, ips[0], strings.Join(ips, `", "`), app, strings.Join(list, ", ")))
}

// Known waits until the control plane's mesh has this many services and workloads.
func (w *World) Known(services, workloads int) {
	w.T.Helper()
	var metrics string
	process.Eventually(w.T, fmt.Sprintf("a mesh of %d services and %d workloads", services, workloads), func() bool {
		metrics = w.PlaneGet("/metrics")
		return strings.Contains(metrics, fmt.Sprintf("\noutriderd_mesh_services %s\n", number(services))) &&
			strings.Contains(metrics, fmt.Sprintf("\noutriderd_mesh_workloads %s\n", number(workloads)))
	}, w.plane)
	if problems := w.local("/debug/problems"); strings.TrimSpace(problems) != "[]" {
		w.T.Fatalf("the folder has mistakes: %s", problems)
	}
}

// number formats n as the Prometheus text format does.
func number(n int) string {
	if n >= 1_000_000 {
		return fmt.Sprintf("%g", float64(n))
	}
	return fmt.Sprint(n)
}

// Token writes a token for a service account to a file that every user may read.
func (w *World) Token(namespace, account string) string {
	w.T.Helper()
	out, err := exec.Command(w.Binaries.Plane, "token", "--state", w.State(), "--namespace", namespace, "--service-account", account).Output()
	if err != nil {
		w.T.Fatalf("outriderd token: %v", err)
	}
	path := filepath.Join(w.Dir, fmt.Sprintf("token-%s-%s", namespace, account))
	if err := os.WriteFile(path, out, 0o644); err != nil {
		w.T.Fatal(err)
	}
	return path
}

// link gives a new namespace its addresses and routes to all others.
func (w *World) link() (pod *ns.Namespace, addresses []netip.Addr) {
	w.T.Helper()
	w.pods++
	pod = ns.New(w.T)
	if w.Family != IPv6 {
		addresses = append(addresses, netip.MustParseAddr(fmt.Sprintf("10.244.%d.2", w.pods)))
	}
	if w.Family != IPv4 {
		addresses = append(addresses, netip.MustParseAddr(fmt.Sprintf("fd44:%d::2", w.pods)))
	}
	var own, gateways []netip.Prefix
	for _, a := range addresses {
		bits := 24
		if a.Is6() {
			bits = 64
		}
		own, gateways = append(own, netip.PrefixFrom(a, bits)), append(gateways, netip.PrefixFrom(a.Prev(), bits))
	}
	ns.Connect(pod, "eth0", own, w.Node, fmt.Sprintf("pod%d", w.pods), gateways)
	for _, g := range gateways {
		pod.IP("route", "add", "default", "via", g.Addr().String())
		// Wait until the neighbour's MAC address is resolved, so that measurements do not include that.
		process.Eventually(w.T, "a neighbour", func() bool {
			var err error
			pod.Do(func() { _, err = net.DialTimeout("tcp", netip.AddrPortFrom(g.Addr(), 9).String(), time.Second) }) // time limit: one try of several
			return errors.Is(err, syscall.ECONNREFUSED)
		})
	}
	return pod, addresses
}

// Proxies returns the control plane's list of connected proxies, as JSON.
func (w *World) Proxies() string { return w.local("/debug/proxies") }

// local requests a path that the control plane serves on loopback only.
func (w *World) local(path string) string {
	client := NewClient(w.Node, 0)
	defer client.Close()
	return client.Get("http://127.0.0.1:15014" + path).Body
}
