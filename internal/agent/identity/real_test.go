package identity

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/buffer"
)

// realEnvoy is the real Envoy that "make deps" fetches.
func realEnvoy(t testing.TB) string {
	t.Helper()
	path := os.Getenv("ENVOY")
	if path == "" {
		path = filepath.Join("..", "..", "..", ".cache", "envoy", "envoy")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("no Envoy here: make deps fetches it")
	}
	return path
}

// Names of Envoy's secrets.
const workloadSecret, rootsSecret = "workload", "roots"

// object is JSON.
type object = map[string]any

const typeURL = "type.googleapis.com/envoy.extensions."

// listener is an Envoy with one listener, which shows the workload's certificate and
// wants the client's. It listens by a socket in a directory of the test's: a port that was
// free a moment ago may be taken by the time that a busy machine has started Envoy.
func listener(socket, secrets string) object {
	secret := func(name string) object {
		return object{"name": name, "sds_config": object{"resource_api_version": "V3", "initial_fetch_timeout": "0s", "api_config_source": object{
			"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "sds"}}}}}}
	}
	const http = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	sds := object{"name": "sds",
		"typed_extension_protocol_options": object{http: object{"@type": "type.googleapis.com/" + http, "explicit_http_config": object{"http2_protocol_options": object{}}}},
		"load_assignment": object{"cluster_name": "sds", "endpoints": []any{object{"lb_endpoints": []any{
			object{"endpoint": object{"address": object{"pipe": object{"path": secrets}}}}}}}}}
	return object{"node": object{"id": "test", "cluster": "test"}, "static_resources": object{"clusters": []any{sds}, "listeners": []any{object{
		"name": "in", "address": object{"pipe": object{"path": socket}},
		"filter_chains": []any{object{
			"filters": []any{object{"name": "answer", "typed_config": object{"@type": typeURL + "filters.network.direct_response.v3.Config",
				"response": object{"inline_string": "hello"}}}},
			"transport_socket": object{"name": "tls", "typed_config": object{"@type": typeURL + "transport_sockets.tls.v3.DownstreamTlsContext",
				"require_client_certificate": true,
				"common_tls_context": object{
					"tls_certificate_sds_secret_configs":   []any{secret(workloadSecret)},
					"validation_context_sds_secret_config": secret(rootsSecret),
				}}},
		}},
	}}}}
}

func TestARealEnvoyShowsEachNewCertificate(t *testing.T) {
	bin := realEnvoy(t)
	p := newPlane(t)
	o := p.options(t)
	// The next comes after some seconds, and each is good for much longer than the slowest
	// machine needs to show it.
	o.Life, o.GraceRatio, o.GraceJitter = 5*time.Minute, 0.98, 0.001
	socket, secrets := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "sds")
	server := must(ListenSecrets(SecretOptions{Socket: secrets, Log: slog.New(slog.DiscardHandler)}))
	served := make(chan error, 1)
	go func() { served <- server.Serve(t.Context()) }()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	o.OnCertificate = func(chain, key []byte) { server.Set(workloadSecret, CertificateSecret(chain, key)) }
	o.OnRoots = func(roots []byte) { server.Set(rootsSecret, RootsSecret(roots)) }
	config := filepath.Join(t.TempDir(), "envoy.json")
	put(t, config, must(json.Marshal(listener(socket, secrets))))
	var log buffer.Buffer
	var w *watched
	serial, lastErr := "", error(nil)
	cmd := exec.Command(bin, "-c", config, "--concurrency", "1", "--disable-hot-restart", "-l", "warning")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			s, _ := w.State()
			t.Logf("the agent: %s, serial %s; Envoy last showed %s, %v; Envoy:\n%s", s, s.Serial, serial, lastErr, log.String())
		}
	})

	w = run(t, o)
	key := must(newKey(P256))
	mine := must(p.authority.Sign(key.Public(), ID{TrustDomain: "cluster.local", Namespace: "test", ServiceAccount: "client"}, time.Hour))
	roots := pool(p.authority.Roots())
	shown := func() (serial string, err error) {
		raw, err := net.Dial("unix", socket)
		if err != nil {
			return "", err
		}
		defer raw.Close()
		raw.SetDeadline(time.Now().Add(20 * time.Second))
		conn := tls.Client(raw, &tls.Config{
			Certificates:       []tls.Certificate{{Certificate: [][]byte{mine.Leaf.Raw}, PrivateKey: key}},
			InsecureSkipVerify: true, // names are URIs here: VerifyConnection looks
			VerifyConnection: func(s tls.ConnectionState) error {
				leaf := s.PeerCertificates[0]
				if id, err := identityOf(leaf); err != nil || id != shop {
					return fmt.Errorf("Envoy is %v, %v", id, err)
				}
				_, err := leaf.Verify(x509.VerifyOptions{Roots: roots})
				return err
			},
		})
		hello := make([]byte, 5)
		if _, err := conn.Read(hello); err != nil { // with it Envoy took our certificate
			return "", err
		}
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Text(16), nil
	}
	// Envoy is behind the agent by as much as the machine is slow: what it shows must be one
	// of the agent's, and become a later one.
	var had []string
	after := func(last int) bool {
		for len(w.states) > 0 {
			if s := <-w.states; s.Serial != "" && !slices.Contains(had, s.Serial) {
				had = append(had, s.Serial)
			}
		}
		serial, lastErr = shown()
		return lastErr == nil && slices.Index(had, serial) > last
	}
	// Each question is a handshake: on a busy machine they would keep Envoy from its start.
	until := func(what string, right func() bool) {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); !right(); {
			select {
			case <-ended:
				t.Fatalf("Envoy has ended: %s; never seen: %s", cmd.ProcessState, what)
			case <-time.After(50 * time.Millisecond):
			}
			if time.Now().After(end) {
				t.Fatalf("never seen: %s", what)
			}
		}
	}
	until("Envoy with a certificate of the agent's", func() bool { return after(-1) })
	first := slices.Index(had, serial)
	until("Envoy with a later one", func() bool { return after(first) })
}
