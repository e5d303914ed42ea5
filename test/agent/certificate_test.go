package agent

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

var long = flag.Bool("long", false, "twice as many short certificates")

// strict is a policy that refuses connections without a certificate, so a served request proves mutual TLS.
const strict = `apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: all, namespace: shop}
spec: {mtls: {mode: STRICT}}
`

// Certificates with a lifetime of ten seconds are renewed under load without an error.
func TestShortCertificates(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Manifest("strict", strict)
	client, server := pair(w, func(c, _ *harness.Pod) {
		c.Env = []string{"SECRET_TTL=10s"} // only the client's agent requests a lifetime
	}, "--certificate-life", "10s", "--max-connection-age", "5s")
	c, s := client.Pod, server.Pod
	outsider := w.Machine("outsider")
	if got := fresh(outsider, "http://"+s.Address.String()+"/", "server HTTP/1.1")(); got == nil {
		t.Error("an outsider without a certificate was served")
	}
	url := "http://" + vip + "/"
	loads := map[string]*harness.Load{
		"new connections":  harness.NewLoad(1, 20*time.Millisecond, fresh(c, url, "server HTTP/1.1")),
		"kept connections": harness.NewLoad(1, 20*time.Millisecond, kept(c, url, "server HTTP/1.1")),
		// Envoy keeps its HTTP connections to the other proxy. Each TCP call opens a new connection, with a handshake.
		"bytes": harness.NewLoad(1, 20*time.Millisecond, func() error {
			conn, err := harness.Dialer(c.Namespace, harness.AppUser)(t.Context(), "tcp", vip+":91")
			if err != nil {
				return err
			}
			defer conn.Close()
			line, err := firstLine(conn)
			if err == nil && line != "server speaks first\n" {
				err = fmt.Errorf("%q", line)
			}
			return err
		}),
	}
	least := 12 // six certificates for each pod
	if *long {
		least *= 2
	}
	// The server ends a stream when the proxy's certificate expires, and the proxy reconnects with the next one.
	for _, what := range []string{`"certificate signed"`, `"proxy connected"`} {
		count := func() int { return strings.Count(w.Plane().Log(), what) }
		took := process.Eventually(t, fmt.Sprintf("%s at least %d times", what, least), func() bool { return count() >= least }, w.Plane(), client, server)
		t.Logf("%s: %d times after %s", what, count(), took)
	}
	judgeAll(t, loads)
	for _, a := range []*harness.Agent{client, server} {
		if s, ok := a.Status(); !ok || !s.Ready {
			t.Errorf("%s: %v", a.Pod.Name, s)
		}
	}
}

// A proxy is identified by its certificate. Requests that claim another identity are refused.
func TestClaimOfAnotherIdentity(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	tests := map[string]struct{ env, code, words string }{
		"another namespace in the request for a certificate": {"POD_NAMESPACE=bank", "certificate-missing", "bank"},
		"another account in the request for a certificate":   {"SERVICE_ACCOUNT=admin", "certificate-missing", "admin"},
		"another namespace in Envoy's metadata":              {"ISTIO_META_NAMESPACE=bank", "identity-refused", "bank"},
		"another account in Envoy's metadata":                {"ISTIO_META_SERVICE_ACCOUNT=admin", "identity-refused", "admin"},
	}
	for name, tt := range tests {
		w.Run(name, func(t *testing.T) {
			p := w.Pod("other")
			p.Env = []string{tt.env}
			a := p.Agent()
			defer a.Kill()
			a.Unready(tt.code, tt.words)
		})
	}
}

// A machine outside Kubernetes can join the mesh with a token, which can be used only once.
func TestMachine(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Service("server", vip, "server", ports...)
	w.Service("vm", "10.96.0.50", "vm", "http 80")
	w.Manifest("strict", strict)
	vm := w.Machine("vm-1")
	const secret = "4a1f-once-only"
	manifest := fmt.Sprintf(`apiVersion: outrider.dev/v1
kind: Host
metadata: {name: vm-1, namespace: shop, labels: {app: vm}}
spec: {address: %s, serviceAccount: vm-1, tokenSHA256: %x}
`, vm.Address, sha256.Sum256([]byte(secret)))
	w.Manifest("vm", manifest)
	w.Serve()
	s := w.Pod("server")
	app(s)
	w.Known(2, 2)
	server := s.Agent()
	server.Ready()

	vm.Token = filepath.Join(vm.Dir, "token")
	if err := os.WriteFile(vm.Token, []byte(secret+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	vm.Capture()
	app(vm)
	a := vm.Agent()
	a.Ready()
	if err := fresh(vm, "http://"+vip+"/", "server HTTP/1.1")(); err != nil {
		t.Errorf("the machine calls a pod: %v", err)
	}
	if err := fresh(s, "http://10.96.0.50/", "vm-1 HTTP/1.1")(); err != nil {
		t.Errorf("a pod calls the machine: %v", err)
	}
	// After a restart the agent uses its stored certificate.
	a.Kill()
	a = vm.Agent()
	a.Ready()

	// A removed machine gets no configuration, even with a valid certificate.
	connected := func() bool { return strings.Contains(w.Proxies(), "vm-1.shop") }
	process.Eventually(t, "its proxy is connected", connected, w.Plane(), a)
	if list := w.Proxies(); !strings.Contains(list, `"envoy": "`+contract.EnvoyVersion+`"`) || !strings.Contains(list, `"agent": "`) {
		t.Errorf("the versions are missing in\n%s", list)
	}
	w.Manifest("vm", "")
	process.Eventually(t, "its proxy is no longer connected", func() bool { return !connected() }, w.Plane(), a)
	a.Kill()
	a = vm.Agent()
	a.Unready("identity-refused", "host shop/vm-1 of this certificate is not in the mesh")
	w.Manifest("vm", manifest)
	a.Ready()
	a.Kill()

	// The token does not work for a second key.
	if err := os.RemoveAll(filepath.Join(vm.Dir, "work", "certs")); err != nil {
		t.Fatal(err)
	}
	other := vm.Agent()
	other.Unready("certificate-missing", "used already")
}
