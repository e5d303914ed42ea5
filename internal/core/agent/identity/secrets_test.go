package identity

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/google/go-cmp/cmp"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"outrider.dev/test/buffer"
)

// A secretRig is a SecretServer with a client of grpc-go, which uses Envoy's own message types.
type secretRig struct {
	*SecretServer
	socket   string
	rejected chan Rejection
	log      *buffer.Buffer
	client   service.SecretDiscoveryServiceClient
	end      func()
}

func newSecretRig(t *testing.T) *secretRig {
	t.Helper()
	r := &secretRig{socket: filepath.Join(t.TempDir(), "sds.sock"), rejected: make(chan Rejection, 10), log: &buffer.Buffer{}}
	var err error
	r.SecretServer, err = ListenSecrets(SecretOptions{Socket: r.socket, Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Rejected: func(why Rejection) { r.rejected <- why }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	r.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.end)
	r.client = dialSecrets(t, r.socket)
	return r
}

// dialSecrets makes a client with its own connection.
func dialSecrets(t *testing.T, socket string) service.SecretDiscoveryServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return service.NewSecretDiscoveryServiceClient(conn)
}

// A subscriber is the client's side of one stream.
type subscriber struct {
	t       *testing.T
	stream  service.SecretDiscoveryService_StreamSecretsClient
	answers chan *discovery.DiscoveryResponse
	ended   chan error
}

func (r *secretRig) subscribe(t *testing.T, names ...string) *subscriber {
	t.Helper()
	stream, err := r.client.StreamSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &subscriber{t: t, stream: stream, answers: make(chan *discovery.DiscoveryResponse, 100), ended: make(chan error, 1)}
	go func() {
		for {
			answer, err := stream.Recv()
			if err != nil {
				s.ended <- err
				return
			}
			s.answers <- answer
		}
	}()
	s.send(&discovery.DiscoveryRequest{ResourceNames: names, TypeUrl: secretType, Node: &core.Node{Id: "n"}})
	return s
}

func (s *subscriber) send(q *discovery.DiscoveryRequest) {
	s.t.Helper()
	if err := s.stream.Send(q); err != nil && err != io.EOF { // after io.EOF the stream's reader gets the reason
		s.t.Fatal(err)
	}
}

// ack acknowledges a response and subscribes to names.
func (s *subscriber) ack(to *discovery.DiscoveryResponse, names ...string) {
	s.t.Helper()
	s.send(&discovery.DiscoveryRequest{VersionInfo: to.VersionInfo, ResponseNonce: to.Nonce, ResourceNames: names, TypeUrl: secretType})
}

// next checks the secrets of the next response.
func (s *subscriber) next(want ...*tls.Secret) *discovery.DiscoveryResponse {
	s.t.Helper()
	select {
	case answer := <-s.answers:
		var got []*tls.Secret
		for _, r := range answer.Resources {
			secret := &tls.Secret{}
			if err := r.UnmarshalTo(secret); err != nil {
				s.t.Fatal(err)
			}
			got = append(got, secret)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			s.t.Errorf("resources (-want +got):\n%s", diff)
		}
		if answer.TypeUrl != secretType || answer.VersionInfo == "" || answer.Nonce == "" {
			s.t.Errorf("type %q, version %q, nonce %q", answer.TypeUrl, answer.VersionInfo, answer.Nonce)
		}
		return answer
	case err := <-s.ended:
		s.t.Fatal(err)
	case <-time.After(time.Minute):
		s.t.Fatal("no response")
	}
	return nil
}

// code checks the status with which the stream ends.
func (s *subscriber) code(want codes.Code, words string) {
	s.t.Helper()
	select {
	case err := <-s.ended:
		if status.Code(err) != want || !strings.Contains(err.Error(), words) {
			s.t.Errorf("the stream ends by %v; want %s, %q", err, want, words)
		}
	case <-time.After(time.Minute):
		s.t.Error("the stream does not end")
	}
}

func source(text string) *core.DataSource {
	return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: []byte(text)}}
}

func envoyCertificate(name, chain, key string) *tls.Secret {
	return &tls.Secret{Name: name, Type: &tls.Secret_TlsCertificate{TlsCertificate: &tls.TlsCertificate{CertificateChain: source(chain), PrivateKey: source(key)}}}
}

func envoyRoots(name, pem string) *tls.Secret {
	return &tls.Secret{Name: name, Type: &tls.Secret_ValidationContext{ValidationContext: &tls.CertificateValidationContext{TrustedCa: source(pem)}}}
}

func TestASubscriptionGetsEachVersionOfASecret(t *testing.T) {
	r := newSecretRig(t)
	r.Set("roots", RootsSecret([]byte("r1")))
	early, late := r.subscribe(t, "roots"), r.subscribe(t, "workload")
	first := early.next(envoyRoots("roots", "r1"))
	early.ack(first, "roots")
	r.Set("workload", CertificateSecret([]byte("c1"), []byte("k1")))
	late.ack(late.next(envoyCertificate("workload", "c1", "k1")), "workload")
	_, before, _ := r.resources([]string{"workload"}, 0)
	r.Set("workload", CertificateSecret([]byte("c1"), []byte("k1")))
	if _, now, _ := r.resources([]string{"workload"}, 0); now != before {
		t.Error("the same secret again is a change")
	}
	r.Set("workload", CertificateSecret([]byte("c2"), []byte("k2")))
	late.next(envoyCertificate("workload", "c2", "k2"))
	// The server sends only subscribed secrets, and each version once.
	r.Set("roots", RootsSecret([]byte("r2")))
	second := early.next(envoyRoots("roots", "r2"))
	if second.VersionInfo == first.VersionInfo || second.Nonce == first.Nonce {
		t.Errorf("version %s and nonce %s are those of before", second.VersionInfo, second.Nonce)
	}
	r.end()
	for _, s := range []*subscriber{early, late} {
		<-s.ended
		if n := len(s.answers); n > 0 {
			t.Errorf("%d more answers", n)
		}
	}
}

func TestASubscriptionMayChange(t *testing.T) {
	r := newSecretRig(t)
	r.Set("a", RootsSecret([]byte("a")))
	r.Set("b", RootsSecret([]byte("b")))
	s := r.subscribe(t, "a", "c")
	answer := s.next(envoyRoots("a", "a"))
	// An ACK of an earlier response is ignored.
	s.send(&discovery.DiscoveryRequest{ResponseNonce: "of another stream", ResourceNames: []string{"b"}, TypeUrl: secretType})
	r.Set("c", RootsSecret([]byte("c")))
	s.next(envoyRoots("a", "a"), envoyRoots("c", "c"))
	s.ack(answer, "b")
	r.Set("c", RootsSecret([]byte("c2")))
	answer = s.next(envoyRoots("a", "a"), envoyRoots("c", "c2"))
	s.ack(answer, "b") // b is older than the last response
	s.next(envoyRoots("b", "b"))
}

func TestANACKIsReportedWithoutTheSecret(t *testing.T) {
	r := newSecretRig(t)
	r.Set("workload", CertificateSecret([]byte("chain"), []byte("PRIVATE")))
	s := r.subscribe(t, "workload")
	refuse := func() {
		answer := <-s.answers
		s.send(&discovery.DiscoveryRequest{ResponseNonce: answer.Nonce, ResourceNames: []string{"workload"}, TypeUrl: secretType,
			ErrorDetail: &rpcstatus.Status{Code: 13, Message: "Failed to load\nprivate key"}})
	}
	want := Rejection{Names: []string{"workload"}, Reason: "Failed to load private key"}
	refuse()
	if diff := cmp.Diff(want, <-r.rejected); diff != "" {
		t.Errorf("rejected (-want +got):\n%s", diff)
	}
	// A rejected version is not sent again; the next version is.
	r.Set("workload", CertificateSecret([]byte("chain"), []byte("PRIVATE 2")))
	s.ack(s.next(envoyCertificate("workload", "chain", "PRIVATE 2")), "workload")
	r.Set("workload", CertificateSecret([]byte("chain"), []byte("PRIVATE 3")))
	refuse()
	want.Kept = true
	if diff := cmp.Diff(want, <-r.rejected); diff != "" {
		t.Errorf("rejected (-want +got):\n%s", diff)
	}
	if log := r.log.String(); !strings.Contains(log, "Failed to load private key") || strings.Contains(log, "PRIVATE") {
		t.Errorf("the log: %s", log)
	}
	secret := CertificateSecret([]byte("chain"), []byte("PRIVATE"))
	slog.New(slog.NewJSONHandler(r.log, nil)).Info("x", "secret", secret)
	if text := fmt.Sprintf("%v %+v %#v %s %q %x %d", secret, secret, secret, secret, secret, secret, secret) + r.log.String(); strings.Contains(text, "PRIVATE") ||
		strings.Contains(text, "50524956") || strings.Contains(text, "80 82 73") {
		t.Errorf("the secret was printed: %s", text)
	}
}

func TestOtherSecretRequestsAreRefused(t *testing.T) {
	r := newSecretRig(t)
	s := r.subscribe(t)
	s.send(&discovery.DiscoveryRequest{TypeUrl: "100% é"})
	s.code(codes.InvalidArgument, `resources of type "100% é"`)
	s = r.subscribe(t, strings.Repeat("x", maxRequest))
	s.code(codes.InvalidArgument, "is the limit")
	if _, err := r.client.FetchSecrets(t.Context(), &discovery.DiscoveryRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("FetchSecrets: %v", err)
	}
	plain := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", r.socket) }, Protocols: new(http.Protocols)}
	plain.Protocols.SetUnencryptedHTTP2(true)
	defer plain.CloseIdleConnections()
	res, err := (&http.Client{Transport: plain}).Get("http://x" + secretsPath)
	if err != nil || res.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("GET: %v, %v", res, err)
	}
}

func TestSecretStreamsAreBounded(t *testing.T) {
	r := newSecretRig(t)
	r.Set("a", RootsSecret([]byte("a")))
	var all []*subscriber
	for range maxStreams {
		s := r.subscribe(t, "a")
		s.next(envoyRoots("a", "a"))
		all = append(all, s)
	}
	// Use another connection: this one has no room for more streams, and its client would wait.
	other := &secretRig{client: dialSecrets(t, r.socket)}
	other.subscribe(t, "a").code(codes.ResourceExhausted, "64 streams")
	if err := all[0].stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := <-all[0].ended; err != io.EOF {
		t.Errorf("a stream that its client has ended: %v", err)
	}
	for free := false; !free; { // the server frees the stream a moment after the client saw its end
		s := other.subscribe(t, "a")
		select {
		case <-s.answers:
			free = true
		case <-s.ended:
		case <-time.After(time.Minute):
			t.Fatal("there is no room for another stream")
		}
	}
}

func TestTheSecretSocket(t *testing.T) {
	r := newSecretRig(t)
	info, err := os.Stat(r.socket)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v; want a socket of mode 0600", info.Mode(), err)
	}
	s := r.subscribe(t, "a")
	r.end()
	s.code(codes.Unavailable, "")
	if _, err := os.Lstat(r.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	o := SecretOptions{Socket: r.socket, Log: slog.New(slog.DiscardHandler)}
	old, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	old.(*net.UnixListener).SetUnlinkOnClose(false) // an agent that is killed leaves its socket
	old.Close()
	again, err := ListenSecrets(o)
	if err != nil {
		t.Fatalf("over an old socket: %v", err)
	}
	if err := again.listener.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(r.socket, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{
		r.socket: "exists and is not a socket", "": "use 1 to 107", "/" + strings.Repeat("x", 107): "use 1 to 107",
		filepath.Join(t.TempDir(), "not", "there"): "no such file",
	} {
		o.Socket = path
		if _, err := ListenSecrets(o); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("ListenSecrets(%q): %v; want %q", path, err, words)
		}
	}
	if raw, _ := os.ReadFile(r.socket); string(raw) != "x" {
		t.Error("the file of another program is gone")
	}
}
