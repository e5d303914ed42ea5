package controlplane

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/process"
)

// started runs a control plane on loopback ports until the test ends.
func started(t testing.TB, o Options) Addresses {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan Addresses, 1), make(chan error, 1)
	o.Listen, o.HTTP, o.Ready = "127.0.0.1:0", "127.0.0.1:0", func(a Addresses) { ready <- a }
	go func() { done <- Run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case at := <-ready:
		return at
	case err := <-done:
		done <- nil
		t.Fatal(err)
		return Addresses{}
	}
}

const serverName = "outriderd.outrider-system.svc"

func rootFile(state string) string { return filepath.Join(state, "ca", "root-cert.pem") }

// clientTLS returns a configuration that trusts the control plane with the given state directory.
func clientTLS(t testing.TB, state string) *tls.Config {
	t.Helper()
	bundle, err := os.ReadFile(rootFile(state))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	return &tls.Config{RootCAs: pool, ServerName: serverName}
}

// A workload is a client with the identity of a pod or a host.
type workload struct {
	t     *testing.T
	state string // state directory of the control plane
	own   *tls.Certificate
}

func (w *workload) dial(address string) *grpc.ClientConn {
	w.t.Helper()
	config := clientTLS(w.t, w.state)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return cmp.Or(w.own, &tls.Certificate{}), nil
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// certify requests a certificate for a new key, with the token or, if that is empty, with the current
// certificate.
func (w *workload) certify(address, token string) error {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		w.t.Fatal(err)
	}
	c := identity.Client{Address: address, Identity: []string{serverName}, RootFile: rootFile(w.state)}
	if token != "" {
		c.TokenFile = filepath.Join(w.t.TempDir(), "token")
		put(w.t, c.TokenFile, token)
	}
	chain, err := c.CreateCertificate(soon(w.t), identity.Call{CSR: pem.EncodeToMemory(&pem.Block{Type: wire.RequestBlock, Bytes: der}), Certificate: w.own})
	if err != nil {
		return err
	}
	w.own = &tls.Certificate{Certificate: [][]byte{chain[0].Raw}, PrivateKey: key, Leaf: chain[0]}
	return nil
}

// A stream delivers configuration. Its first response has already been read.
type stream = discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

func (w *workload) stream(address, name string) (stream, error) {
	w.t.Helper()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(w.dial(address)).DeltaAggregatedResources(soon(w.t))
	if err != nil {
		return nil, err
	}
	node := &core.Node{Id: "sidecar~192.0.2.1~" + name + ".shop~shop.svc.cluster.local"}
	// If Send fails, Recv returns the error.
	_ = s.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: "type.googleapis.com/envoy.config.listener.v3.Listener"})
	_, err = s.Recv()
	return s, err
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func hostManifest(name, account, token string) string {
	return fmt.Sprintf("{apiVersion: outrider.dev/v1, kind: Host, metadata: {name: %s, namespace: shop}, spec: {address: 192.0.2.1, serviceAccount: %s, tokenSHA256: %x}}",
		name, account, sha256.Sum256([]byte(token)))
}

func unauthenticated(err error) bool {
	var f *identity.Fault
	return status.Code(err) == codes.Unauthenticated || errors.As(err, &f) && f.Kind == identity.Rejected
}

// If a host is removed from the mesh, its streams end, and it can no longer renew its certificate.
func TestAHostThatIsRemovedIsNotServed(t *testing.T) {
	folder, state := t.TempDir(), t.TempDir()
	manifest := filepath.Join(folder, "vm.yaml")
	put(t, manifest, hostManifest("vm-1", "web", "once"))
	declared := filepath.Join(folder, "web-1.yaml")
	put(t, declared, "{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop}, spec: {serviceAccountName: web}, status: {podIP: 192.0.2.7}}")
	at := started(t, Options{Folder: folder, State: state}).Discovery
	host := &workload{t: t, state: state}
	if err := host.certify(at, "once"); err != nil {
		t.Fatal(err)
	}
	if err := host.certify(at, ""); err != nil {
		t.Fatalf("renewing: %v", err)
	}
	// A pod with the same identity is still served.
	tokens, err := ca.NewTokens(state, "cluster.local")
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.Issue(ca.Claim{Namespace: "shop", ServiceAccount: "web"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pod := &workload{t: t, state: state}
	if err := pod.certify(at, token); err != nil {
		t.Fatal(err)
	}
	open := func(w *workload, name string) stream {
		t.Helper()
		s, err := w.stream(at, name)
		if err != nil {
			t.Fatalf("a stream of %s: %v", name, err)
		}
		return s
	}
	refused := func(what string, err error) {
		t.Helper()
		if !unauthenticated(err) || !strings.Contains(err.Error(), "host shop/vm-1 of this certificate is not in the mesh") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	// end reads the remaining messages of a stream and returns its error.
	end := func(s stream) (err error) {
		for err == nil {
			_, err = s.Recv()
		}
		return err
	}
	hosts, pods := open(host, "vm-1"), open(pod, "web-1")

	// Other changes of the mesh do not end streams.
	put(t, filepath.Join(folder, "other.yaml"), "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop}, spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}}")
	for name, s := range map[string]stream{"the host": hosts, "the pod": pods} {
		if _, err := s.Recv(); err != nil { // the change adds a port to the listener
			t.Fatalf("%s after a change: %v", name, err)
		}
	}

	put(t, manifest, hostManifest("vm-1", "admin", "once")) // no host has the previous service account any more
	refused("the open stream", end(hosts))
	_, err = host.stream(at, "vm-1")
	refused("another stream", err)
	put(t, manifest, hostManifest("vm-1", "web", "once"))
	var again stream
	process.Retry(t, func() error {
		if again, err = host.stream(at, "vm-1"); err != nil {
			return fmt.Errorf("a host that is back: %w", err)
		}
		return nil
	})

	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	refused("the open stream of a host that is gone", end(again))
	_, err = host.stream(at, "vm-1")
	refused("another stream of it", err)
	refused("a renewal", host.certify(at, ""))
	refused("a renewal with the old token", host.certify(at, "once"))
	refused("a name", host.dial(at).Invoke(soon(t), wire.NamesPath, &emptypb.Empty{}, &emptypb.Empty{}))

	if err := pod.certify(at, ""); err != nil {
		t.Errorf("the pod's renewal: %v", err)
	}
	open(pod, "web-1")
	// The pod's first stream is still open.
	put(t, filepath.Join(folder, "other.yaml"), "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop}, spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 81}]}}")
	if _, err := pods.Recv(); err != nil {
		t.Errorf("the pod's stream: %v", err)
	}

	// Without a cluster, a pod has left the mesh when the folder no longer declares it.
	if err := os.Remove(declared); err != nil {
		t.Fatal(err)
	}
	process.Retry(t, func() error {
		err := pod.certify(at, "")
		if unauthenticated(err) && strings.Contains(err.Error(), "no pod of the mesh has the service account shop/web") {
			return nil
		}
		return fmt.Errorf("the renewal of a pod that is gone: %v", err)
	})
	if err := pod.certify(at, token); err != nil {
		t.Errorf("with a token: %v", err)
	}
}

// In a cluster it is not sufficient for a renewal that the pod is declared. test/kube tests the renewal with
// a token.
func TestInAClusterNoCertificateRenewsItself(t *testing.T) {
	if err := (&plane{cluster: &cluster{}}).mayRenew(ca.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}); !errors.Is(err, ca.ErrTokenNeeded) {
		t.Errorf("%v; want %v", err, ca.ErrTokenNeeded)
	}
}
