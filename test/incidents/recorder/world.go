package recorder

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/lab/localpod"
	"outrider.dev/test/awesome"
)

// The services of the world. The first one answers, nothing listens at the second, and the third
// answers with an error status.
const (
	liveIP, deadIP, sickIP = "10.96.8.1", "10.96.8.2", "10.96.8.3"
	domain                 = ".shop.svc.cluster.local"
)

// sources is the folder of the applications.
const sources = "test/incidents/recorder/apps"

var services = map[string]string{"config-server": liveIP, "legacy-config": deadIP, "sick-config": sickIP}

// Options configure a Recorder.
type Options struct {
	Root  string // folder of this repository
	Bin   string // folder of the commands; outriderd is needed only by cases of the form outrider
	Envoy string // path of the binary
}

// A Recorder is a machine on which incidents are staged, many at the same time.
type Recorder struct {
	o     Options
	dir   string
	node  *localpod.Node
	plane func() error // starts the control plane, once
}

// Open sets up a machine for cases. Close ends everything on it.
func Open(o Options, of []Incident) (*Recorder, error) {
	w := &Recorder{o: o}
	w.plane = sync.OnceValue(w.mesh)
	for _, p := range []*string{&w.o.Root, &w.o.Bin, &w.o.Envoy} {
		var err error
		if *p, err = filepath.Abs(*p); err != nil {
			return nil, err
		}
	}
	var err error
	if w.dir, err = os.MkdirTemp("", "incidents-"); err != nil {
		return nil, err
	}
	for _, step := range []func() error{func() error { return w.build(of) }, w.connect, w.serve} {
		if err := step(); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// Close ends the pods and the machine.
func (w *Recorder) Close() {
	if w.node != nil {
		w.node.Close()
	}
	os.RemoveAll(w.dir)
}

// build builds the applications of cases into one folder, which is /app in the pods.
func (w *Recorder) build(of []Incident) error {
	if err := os.CopyFS(filepath.Join(w.dir, "app"), os.DirFS(filepath.Join(w.o.Root, sources))); err != nil {
		return err
	}
	needs := func(what string) bool {
		return slices.ContainsFunc(of, func(c Incident) bool { return strings.Contains(strings.Join(runtimes[c.runtime], " "), what) })
	}
	for _, c := range []struct {
		need    string
		command []string
	}{
		{"/app/go-app", []string{"go", "build", "-trimpath", "-o", w.dir + "/app/go-app", "./" + sources + "/goapp"}},
		{"-cp /app App", []string{"javac", "-d", w.dir + "/app", sources + "/App.java"}},
		{"", []string{"chmod", "a+x", w.dir, w.dir + "/app/pilot-agent.sh"}},
	} {
		if !needs(c.need) {
			continue
		}
		cmd := exec.Command(c.command[0], c.command[1:]...)
		cmd.Dir = w.o.Root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", cmd, err, out)
		}
	}
	if needs("/app/awesome/") {
		if _, err := awesome.Install(w.o.Root, w.dir+"/app/awesome"); err != nil { // Missing has already reported missing tools
			return err
		}
	}
	if err := envoys(w.dir + "/app"); err != nil {
		return err
	}
	return exec.Command("chmod", "-R", "a+rX", w.dir+"/app").Run()
}

// connect creates the machine and the addresses of its services.
func (w *Recorder) connect() (err error) {
	if w.node, err = localpod.NewNode(localpod.NodeOptions{Name: "node-1"}); err != nil {
		return err
	}
	return w.node.Do(func() error {
		for _, ip := range services { // any order: each is added
			if out, err := exec.Command("ip", "addr", "add", ip+"/32", "dev", "lo").CombinedOutput(); err != nil {
				return fmt.Errorf("ip addr add: %w: %s", err, out)
			}
		}
		return nil
	})
}

// mesh writes the services for outriderd, and starts it.
func (w *Recorder) mesh() error {
	var b strings.Builder
	for name, ip := range services { // any order: a set of objects
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %[1]s, namespace: shop}\nspec: {clusterIP: %[2]s, ports: [{name: http, port: 8080}, {name: redis, port: 6379}]}\n"+
			"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[1]s-1, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}\n"+
			"addressType: IPv4\nports: [{name: http, port: 8080}, {name: redis, port: 6379}]\nendpoints: [{addresses: [%[2]q], conditions: {ready: true}}]\n", name, ip)
	}
	for _, sub := range []string{"mesh", "state"} {
		if err := os.Mkdir(filepath.Join(w.dir, sub), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(w.dir+"/mesh/services.yaml", []byte(b.String()), 0o644); err != nil {
		return err
	}
	cmd := exec.Command(w.o.Bin+"/outriderd", "serve", "--source", "files:"+w.dir+"/mesh", "--state", w.dir+"/state")
	return w.node.Serve(cmd, `"msg":"serving"`, io.Discard)
}

// serve starts the services, and a DNS server that knows no names.
func (w *Recorder) serve() error {
	for ip, status := range map[string]int{liveIP: http.StatusOK, sickIP: http.StatusInternalServerError} { // any order: each is started
		l, err := w.node.Listen(net.JoinHostPort(ip, "8080"))
		if err != nil {
			return err
		}
		go http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(status)
			fmt.Fprintf(rw, "{\"path\": %q, \"status\": %d}\nlevel=INFO\n", r.URL.Path, status) // the last line is for awesome-app
		}))
	}
	l, err := w.node.Listen(net.JoinHostPort(liveIP, "6379"))
	if err != nil {
		return err
	}
	go queue(l)
	return w.node.Do(func() error {
		c, err := net.ListenPacket("udp4", net.JoinHostPort(w.node.Addresses()[0].String(), "53"))
		if err != nil {
			return err
		}
		go func() {
			query := make([]byte, 1500)
			for {
				n, from, err := c.ReadFrom(query)
				if err != nil {
					return
				}
				if n > 3 {
					query[2], query[3] = query[2]|0x84, 0x83 // a response: NXDOMAIN
					_, _ = c.WriteTo(query[:n], from)
				}
			}
		}()
		return nil
	})
}

// queue is a Redis that only answers PING.
func queue(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			if _, err := c.Read(make([]byte, 512)); err == nil {
				_, _ = c.Write([]byte("+PONG\r\n"))
			}
		}()
	}
}

// options returns the options of each pod.
func (w *Recorder) options(c Incident) (localpod.Options, error) {
	hosts := map[string]string{"outriderd.outrider-system.svc": w.node.Addresses()[0].String()}
	for name, ip := range services { // any order: collected in a map
		hosts[name+domain] = ip
	}
	var root []byte
	if c.form == "outrider" {
		if err := w.plane(); err != nil {
			return localpod.Options{}, err
		}
		var err error
		if root, err = os.ReadFile(w.dir + "/state/ca/root-cert.pem"); err != nil {
			return localpod.Options{}, err
		}
	}
	return localpod.Options{
		ConfigMaps: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "outrider-ca-root-cert", Namespace: "shop"}, Data: map[string]string{"root-cert.pem": string(root)}}},
		Binds: []localpod.Bind{
			{From: w.o.Bin + "/outrider-agent", To: "/usr/local/bin/outrider-agent"}, {From: w.o.Bin + "/outrider-agent", To: "/usr/local/bin/istio-iptables"},
			{From: w.dir + "/app/pilot-agent.sh", To: "/usr/local/bin/pilot-agent"},
			{From: w.o.Envoy, To: "/usr/local/bin/envoy"}, {From: w.dir + "/app", To: "/app"},
		},
		Token: func(string) ([]byte, error) {
			out, err := exec.Command(w.o.Bin+"/outriderd", "token", "--state", w.dir+"/state", "--namespace", "shop", "--service-account", "shop").Output()
			return []byte(strings.TrimSpace(string(out))), err
		},
		Hosts: hosts,
	}, nil
}
