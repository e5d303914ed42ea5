package xds

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"outrider.dev/internal/agent/envoy"
)

// clusters is a snapshot of clusters that a real Envoy accepts.
func clusters(t *testing.T, version string, names ...string) *textSnapshot {
	t.Helper()
	var lines strings.Builder
	for _, name := range names {
		lines.WriteString("cds " + name + " *\n")
	}
	v := mustSnapshot(t, version, lines.String())
	for k, e := range v.entries {
		body, err := anypb.New(&cluster.Cluster{Name: k.name, AltStatName: e.resource.Version, ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}})
		if err != nil {
			t.Fatal(err)
		}
		e.resource.Body = body
	}
	return v
}

// TestEnvoyKeepsWhatItHasOverAReconnect is why equal versions are not sent again by
// wildcard: a replica takes over, and a cluster that it never sent is still there.
func TestEnvoyKeepsWhatItHasOverAReconnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	first := New(byClaim(newTestSource(clusters(t, "1", "kept@1", "updated@1"))))
	stop := serveOn(t, l, first)
	get := startEnvoy(t, address)
	eventually(t, "both clusters", func() bool {
		all := get("/clusters")
		return strings.Contains(all, "kept::") && strings.Contains(all, "updated::") && strings.Contains(get("/ready"), "LIVE")
	})
	stop()

	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	second := New(byClaim(newTestSource(clusters(t, "2", "kept@1", "updated@2", "new@1"))))
	messages := &recorder{}
	defer serveOn(t, l, second, grpc.StreamInterceptor(messages.intercept))()
	eventually(t, "the clusters of the second replica", func() bool {
		return strings.Contains(get("/clusters"), "new::") && strings.Contains(get("/config_dump?resource=dynamic_active_clusters"), `"alt_stat_name": "2"`)
	})
	if !strings.Contains(get("/clusters"), "kept::") {
		t.Error("Envoy dropped the cluster that was not sent again")
	}
	if diff := cmp.Diff([]string{"cds #1 new@1 updated@2", "lds #2"}, messages.lines()); diff != "" {
		t.Errorf("messages of the second replica (-want +got):\n%s", diff)
	}
	if n := second.Counters().Rejected; n != 0 {
		t.Errorf("Envoy rejected %d messages", n)
	}
}

// A recorder records the messages of a server.
type recorder struct {
	mu  sync.Mutex
	got []string
}

type recordedStream struct {
	grpc.ServerStream
	by *recorder
}

func (o recordedStream) SendMsg(m any) error {
	if r, ok := m.(*discovery.DeltaDiscoveryResponse); ok {
		o.by.mu.Lock()
		o.by.got = append(o.by.got, renderDelta(r))
		o.by.mu.Unlock()
	}
	return o.ServerStream.SendMsg(m)
}

func (l *recorder) intercept(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, recordedStream{ss, l})
}

func (l *recorder) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.got)
}

// serveOn serves until the function that it returns is called.
func serveOn(t *testing.T, l net.Listener, s *Server, options ...grpc.ServerOption) (stop func()) {
	g := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	return func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Errorf("serving: %v", err)
		}
	}
}

// startEnvoy runs the real Envoy until the test ends. The function that it returns queries
// the admin interface.
func startEnvoy(t *testing.T, controlPlane string) (get func(path string) string) {
	t.Helper()
	binary := os.Getenv("ENVOY")
	if binary == "" {
		binary = filepath.Join("..", "..", ".cache", "envoy", "envoy")
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skip("no Envoy here: make deps fetches it")
	}
	o := envoy.Options{
		Node:         envoy.Node{ID: "sidecar~127.0.0.1~app-1.shop~shop.svc.cluster.local"},
		ControlPlane: envoy.ControlPlane{Address: controlPlane, Plaintext: true},
		Admin:        envoy.Endpoint{Socket: "admin.sock"}, NoPrometheus: true,
	}
	raw, err := o.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "envoy.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(binary, o.Args("envoy.json")...)
	cmd.Dir, cmd.Stderr = dir, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "admin.sock"))
	}
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("Envoy's log:\n%s", log.String())
		}
	})
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	return func(path string) string {
		r, err := client.Get("http://envoy" + path)
		if err != nil {
			return ""
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		return string(body)
	}
}

// eventually polls until ok returns true, for half a minute on a busy machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never seen: %s", what)
}
