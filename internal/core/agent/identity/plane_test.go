package identity

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
	server "outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/port"
)

const (
	planeName = "outriderd.outrider-system.svc"
	planeID   = "spiffe://cluster.local/ns/outrider-system/sa/outriderd"
)

var shop = ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "app"}

// A plane is a real control plane on loopback: package controlplane/ca, served by grpc-go.
type plane struct {
	dir       string
	authority *server.Authority
	tokens    *server.Tokens
	address   string
	server    *grpc.Server
	requests  atomic.Int32
	hang      atomic.Bool
}

// newAuthority makes an authority with its own root.
func newAuthority(t testing.TB) *server.Authority {
	t.Helper()
	return must(server.NewAuthority(t.Context(), server.AuthorityOptions{Store: server.Directory(t.TempDir())}))
}

func newPlane(t testing.TB) *plane {
	t.Helper()
	dir := t.TempDir()
	p := &plane{dir: dir, authority: must(server.NewAuthority(t.Context(), server.AuthorityOptions{Store: server.Directory(dir)})), tokens: must(server.NewTokens(dir, "cluster.local"))}
	p.start(t, port.Hold(t).String()) // a restart uses the same port
	t.Cleanup(p.stop)
	return p
}

func (p *plane) start(t testing.TB, address string) {
	t.Helper()
	serving := must(p.authority.NewServing(must(parse(planeID)), []string{planeName, contract.ControlPlaneName}, 0))
	service := &server.Service{Authority: p.authority, Authenticators: []server.Authenticator{p.tokens, server.MutualTLS{Authority: p.authority, MayRenew: func(ID) error { return nil }}},
		Log: slog.New(slog.DiscardHandler)}
	p.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(serving.TLS())), grpc.UnaryInterceptor(
		func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			p.requests.Add(1)
			if p.hang.Load() {
				<-ctx.Done()
			}
			return next(ctx, in)
		}))
	service.Register(p.server)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p.address = listener.Addr().String()
	go p.server.Serve(listener)
}

func (p *plane) stop() { p.server.Stop() }

func (p *plane) token(t testing.TB, id ID) string {
	t.Helper()
	return must(p.tokens.Issue(server.Claim{Namespace: id.Namespace, ServiceAccount: id.ServiceAccount}, time.Now()))
}

// options returns the options of a pod, with the token and the root in files.
func (p *plane) options(t testing.TB) Options {
	t.Helper()
	mount := t.TempDir()
	put(t, filepath.Join(mount, "token"), []byte(p.token(t, shop)+"\n"))
	put(t, filepath.Join(mount, "root-cert.pem"), p.authority.RootsPEM())
	return Options{
		Identity: shop, Dir: filepath.Join(t.TempDir(), "certs"),
		Client: Client{Address: p.address, Identity: []string{planeID},
			TokenFile: filepath.Join(mount, "token"), RootFile: filepath.Join(mount, "root-cert.pem")},
	}
}

// rotate copies files of another authority into the plane's directory.
func (p *plane) rotate(t testing.TB, from string, names ...string) {
	t.Helper()
	for _, name := range names {
		put(t, filepath.Join(p.dir, name), must(os.ReadFile(filepath.Join(from, name))))
	}
	if err := p.authority.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// put replaces a file by renaming, as Kubernetes does.
func put(t testing.TB, path string, content []byte) {
	t.Helper()
	next := filepath.Join(filepath.Dir(path), ".put")
	if err := os.WriteFile(next, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// watched is a running keeper, with all its states.
type watched struct {
	*Keeper
	states chan State
	stop   func() // stops the keeper and waits for it
}

func run(t testing.TB, o Options) *watched {
	t.Helper()
	w := &watched{states: make(chan State, 10000)}
	o.OnState = func(s State) { w.states <- s }
	k, err := NewKeeper(o)
	if err != nil {
		t.Fatal(err)
	}
	w.Keeper = k
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	var stopped atomic.Bool
	w.stop = func() {
		cancel()
		if !stopped.Swap(true) {
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	}
	t.Cleanup(w.stop)
	return w
}

// until waits for a state for which the function right returns true, and returns that state.
func (w *watched) until(t testing.TB, what string, right func(State) bool) State {
	t.Helper()
	var seen []string
	for end := time.After(time.Minute); ; {
		select {
		case s := <-w.states:
			if right(s) {
				return s
			}
			seen = append(seen, s.String())
		case <-end:
			t.Fatalf("never seen: %s; but %q", what, slices.Compact(seen))
		}
	}
}

func (w *watched) phase(t testing.TB, p Phase) State {
	t.Helper()
	return w.until(t, string(p), func(s State) bool { return s.Phase == p })
}

func isFault(kind Kind) func(State) bool {
	return func(s State) bool { return s.Fault != nil && s.Fault.Kind == kind }
}

// onDisk returns the stored certificate.
func (w *watched) onDisk(t testing.TB) *held {
	t.Helper()
	h, err := readHeld(w.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (w *watched) rootsOnDisk(t testing.TB) string {
	t.Helper()
	return string(wire.MarshalCertificates(readRoots(w.o.Dir)...))
}

func text(t testing.TB, dir, name string) string {
	t.Helper()
	return string(must(os.ReadFile(filepath.Join(dir, name))))
}

var stored = []string{storedCertificate, storedRoots}
