package readiness

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"outrider.dev/internal/agent/envoy"
	"outrider.dev/internal/agent/identity"
	"outrider.dev/test/secretserver"
)

// A real is an Envoy of a test, whose log goes to a Proxy.
type real struct {
	board  *Board
	ctx    context.Context // ends with Envoy
	ready  chan error
	signal func(syscall.Signal)

	mu   sync.Mutex
	line time.Time // when it was initialized, as its log says by being read
}

// run starts the Envoy that "make deps" fetches, in a directory with these files.
func run(t testing.TB, o envoy.Options, po ProxyOptions, files map[string]string) *real {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", ".cache", "envoy", "envoy"))
	if e := os.Getenv("ENVOY"); e != "" {
		path = e
	}
	if _, notThere := os.Stat(path); err != nil || notThere != nil {
		t.Skip("no Envoy here: make deps fetches it")
	}
	dir := t.TempDir()
	o.Admin.Socket, o.NoPrometheus = filepath.Join(dir, "a"), true
	o.Node.ID = "sidecar~127.0.0.1~a.b~c"
	if o.ControlPlane.Address == "" {
		o.ControlPlane = envoy.ControlPlane{Address: "127.0.0.1:1", Plaintext: true}
	}
	raw, err := o.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	files = merged(files, "envoy.json", string(raw))
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(path, o.Args("envoy.json")...)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &real{board: New(Options{Conditions: []Condition{Identity, ControlPlane, Envoy, Configuration, Listeners}}),
		ctx: ctx, ready: make(chan error, 1), signal: func(s syscall.Signal) { cmd.Process.Signal(s) }}
	admin := envoy.NewAdmin(o, time.Second)
	po.Board, po.Admin = r.board, admin
	p := NewProxy(po)
	go func() {
		defer cancel()
		s := bufio.NewScanner(stderr)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			l := envoy.ParseLine(s.Bytes())
			if l.Message == envoy.ReadyMessage {
				r.mu.Lock()
				r.line = time.Now()
				r.mu.Unlock()
			}
			p.LogLine(l)
		}
		cmd.Wait()
	}()
	go func() { r.ready <- p.Ready(ctx, cmd.Process.Pid) }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ctx.Done()
		admin.Close()
	})
	return r
}

// serveSecrets gives an Envoy its secrets by a socket.
func serveSecrets(t testing.TB, chain, key []byte) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "sds")
	s := secretserver.Serve(t, socket, nil)
	s.Set(envoy.RootsName, identity.RootsSecret(chain))
	s.Set(envoy.SecretName, identity.CertificateSecret(chain, key))
	return socket
}

func merged(m map[string]string, k, v string) map[string]string {
	out := map[string]string{k: v}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// listener is one of Envoy's that closes what it accepts.
func listener(name string, port uint16) string {
	return fmt.Sprintf(`{"name": %q, "address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}, "filter_chains": [{"filters": [
		{"name": "envoy.filters.network.echo", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}}]}]}`, name, port)
}

// dynamic is configuration by files, which Envoy counts and rejects as that of a control plane.
const dynamic = `{"dynamic_resources": {"ads_config": null, "cds_config": {"ads": null, "initial_fetch_timeout": null, "path_config_source": {"path": "./cds.json"}},
	"lds_config": {"ads": null, "initial_fetch_timeout": null, "path_config_source": {"path": "./lds.json"}}}}`

func discovered(listeners ...string) map[string]string {
	for i, l := range listeners {
		listeners[i] = strings.Replace(l, "{", `{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", `, 1)
	}
	return map[string]string{"cds.json": `{"resources": []}`, "lds.json": `{"resources": [` + strings.Join(listeners, ",") + `]}`}
}

func TestARealEnvoyBecomesReadyAndDies(t *testing.T) {
	ports := freePorts(t, 2)
	r := run(t, envoy.Options{Extra: json.RawMessage(dynamic)}, ProxyOptions{Ports: ports, Slow: time.Hour},
		discovered(listener("a", ports[0]), listener("b", ports[1])))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := r.board.Wait(ctx, Outbound)
	if err != nil {
		t.Fatalf("never ready: %v, %+v", err, s)
	}
	if err := <-r.ready; err != nil {
		t.Fatal(err)
	}
	for _, p := range ports {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			t.Fatalf("ready, and then: %v", err)
		}
		c.Close()
	}
	r.signal(syscall.SIGSTOP)
	stopped := time.Now()
	await(t, r.board, "envoy-not-live: Envoy runs, and its admin interface has not answered for 3s")
	t.Logf("that it hangs was seen after %s", time.Since(stopped).Round(time.Millisecond))
	r.signal(syscall.SIGCONT)
	if _, err := r.board.Wait(ctx, Outbound); err != nil {
		t.Errorf("it goes on, and: %v", err)
	}
	r.signal(syscall.SIGKILL)
	await(t, r.board, "envoy-not-live: Envoy has ended")
}

func TestARealEnvoySaysWhyNot(t *testing.T) {
	ports := freePorts(t, 2)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.EnableHTTP2, stranger.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	stranger.StartTLS()
	defer stranger.Close()
	chain, key := certificate(t)
	refuser := httptest.NewUnstartedServer(http.NotFoundHandler())
	own, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	refuser.EnableHTTP2, refuser.TLS = true, &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), NextProtos: []string{"h2"}}
	refuser.Config.ErrorLog = stranger.Config.ErrorLog
	refuser.StartTLS()
	defer refuser.Close()
	secrets := serveSecrets(t, chain, key)
	over := func(s *httptest.Server) envoy.ControlPlane {
		return envoy.ControlPlane{Address: s.Listener.Addr().String(), Identity: []string{"cp.example"}, Secrets: secrets}
	}
	tests := map[string]struct {
		o     envoy.Options
		ports []uint16
		files map[string]string
		want  []string
	}{
		"no control plane at its address": {ports: ports, want: []string{"no-control-plane: no stream to ", "listener-not-bound: Envoy does not listen on "}},
		"a stranger at the control plane's address": {o: envoy.Options{ControlPlane: over(stranger)}, ports: ports,
			want: []string{"identity-refused: ", "CERTIFICATE VERIFY FAILED"}},
		"a control plane that does not know us": {o: envoy.Options{ControlPlane: over(refuser)}, ports: ports,
			want: []string{"identity-refused: ", "UNKNOWN CA", "no-control-plane: "}},
		"a listener on a port that is taken": {o: envoy.Options{Extra: json.RawMessage(dynamic)}, ports: []uint16{uint16(taken.Addr().(*net.TCPAddr).Port)},
			files: discovered(listener("a", uint16(taken.Addr().(*net.TCPAddr).Port))), want: []string{"configuration-not-accepted: Envoy rejected the listeners: ", "Address already in use", "listener-not-bound"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := run(t, tt.o, ProxyOptions{Ports: tt.ports, Slow: 20 * time.Millisecond}, tt.files)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var last Status
			for last = range r.board.Subscribe(ctx, Outbound) {
				if !slices.ContainsFunc(tt.want, func(w string) bool { return !strings.Contains(last.String(), w) }) {
					t.Log(last)
					return
				}
			}
			t.Errorf("last: %v\nwant %q", last, tt.want)
		})
	}
}

// certificate signs itself.
func certificate(t *testing.T) (chain, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a"}, DNSNames: []string{"cp.example"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// BenchmarkLineToRelease is from reading Envoy's line to the moment a waiter runs, with
// real Envoys.
func BenchmarkLineToRelease(b *testing.B) {
	var all []time.Duration
	for b.Loop() {
		ports := freePorts(b, 2)
		r := run(b, envoy.Options{Extra: json.RawMessage(dynamic)}, ProxyOptions{Ports: ports}, discovered(listener("a", ports[0]), listener("b", ports[1])))
		if _, err := r.board.Wait(r.ctx, Outbound); err != nil {
			b.Fatal(err)
		}
		now := time.Now()
		r.mu.Lock()
		all = append(all, now.Sub(r.line))
		r.mu.Unlock()
		r.signal(syscall.SIGKILL)
		<-r.ctx.Done()
	}
	slices.Sort(all)
	for name, d := range map[string]time.Duration{"min": all[0], "p50": all[len(all)/2], "p99": all[len(all)*99/100], "max": all[len(all)-1]} {
		b.ReportMetric(float64(d.Microseconds())/1000, name+"-ms")
	}
}
