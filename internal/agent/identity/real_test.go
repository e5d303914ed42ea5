package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"outrider.dev/internal/agent/envoy"
	"outrider.dev/internal/identity/spiffe"
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

// object is JSON.
type object = map[string]any

const typeURL = "type.googleapis.com/envoy.extensions."

// listener is an Envoy with one listener, which shows the workload's certificate and
// wants the client's.
func listener(address, certs string) object {
	host, port, _ := net.SplitHostPort(address)
	number := must(net.LookupPort("tcp", port))
	secret := func(name, file string) object {
		return object{"name": name, "sds_config": object{"resource_api_version": "V3",
			"path_config_source": object{"path": certs + "/" + file, "watched_directory": object{"path": certs}}}}
	}
	return object{"node": object{"id": "test", "cluster": "test"}, "static_resources": object{"listeners": []any{object{
		"name": "in", "address": object{"socket_address": object{"address": host, "port_value": number}},
		"filter_chains": []any{object{
			"filters": []any{object{"name": "answer", "typed_config": object{"@type": typeURL + "filters.network.direct_response.v3.Config",
				"response": object{"inline_string": "hello"}}}},
			"transport_socket": object{"name": "tls", "typed_config": object{"@type": typeURL + "transport_sockets.tls.v3.DownstreamTlsContext",
				"require_client_certificate": true,
				"common_tls_context": object{
					"tls_certificate_sds_secret_configs":   []any{secret(envoy.SecretName, envoy.SecretFile)},
					"validation_context_sds_secret_config": secret(envoy.RootsName, envoy.RootsFile),
				}}},
		}},
	}}}}
}

// A buffer that two write to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestARealEnvoyShowsEachNewCertificate(t *testing.T) {
	bin := realEnvoy(t)
	p := newPlane(t)
	o := p.options(t)
	o.Life = 20 * time.Second
	k := must(NewKeeper(o))
	if err := k.Prepare(); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	config := filepath.Join(t.TempDir(), "envoy.json")
	put(t, config, must(json.Marshal(listener(address, o.Dir))))
	var log buffer
	var w *watched
	serial, lastErr := "", error(nil)
	cmd := exec.Command(bin, "-c", config, "--concurrency", "1", "--disable-hot-restart", "-l", "warning")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
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
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address, &tls.Config{
			Certificates:       []tls.Certificate{{Certificate: [][]byte{mine.Leaf.Raw}, PrivateKey: key}},
			InsecureSkipVerify: true, // names are URIs here: VerifyConnection looks
			VerifyConnection: func(s tls.ConnectionState) error {
				leaf := s.PeerCertificates[0]
				if id, err := spiffe.Of(leaf); err != nil || id != shop {
					return fmt.Errorf("Envoy is %v, %v", id, err)
				}
				_, err := leaf.Verify(x509.VerifyOptions{Roots: roots})
				return err
			},
		})
		if err != nil {
			return "", err
		}
		defer conn.Close()
		hello := make([]byte, 5)
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Read(hello); err != nil { // with it Envoy took our certificate
			return "", err
		}
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Text(16), nil
	}
	// Envoy may be slow to start, and certificates are short here: what it shows is
	// compared with what the agent has at that time.
	agrees := func() bool {
		serial, lastErr = shown()
		s, _ := w.State()
		return serial != "" && serial == s.Serial
	}
	// Each question is a handshake: on a busy machine they would keep Envoy from its start.
	until := func(what string, right func() bool) {
		t.Helper()
		for end := time.Now().Add(90 * time.Second); !right(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never seen: %s", what)
			}
		}
	}
	until("Envoy with the agent's certificate", agrees)
	first := serial
	until("Envoy with the agent's next certificate", func() bool { return agrees() && serial != first })
}
