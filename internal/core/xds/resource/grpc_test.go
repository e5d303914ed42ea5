package resource_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	grpcxds "google.golang.org/grpc/xds"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
	"outrider.dev/test/process"
)

// A grpcMesh is a control plane with one service, greeter, whose port 81 is for gRPC.
type grpcMesh struct {
	t         *testing.T
	builder   *build.Builder
	feed      *mesh.Feed
	server    *xds.Server
	bootstrap []byte // for its clients
}

func newGRPCMesh(t *testing.T) *grpcMesh {
	w := &grpcMesh{t: t, builder: build.New(mesh.Config{}), feed: &mesh.Feed{}}
	w.set(service("greeter", "", "10.96.0.1", port(80, mesh.HTTP), port(81, mesh.GRPC)))
	w.server = xds.New(xds.Options{Source: resource.New(w.feed), Authenticate: xds.ByClaim})
	control := w.serve(func(g *grpc.Server) { discovery.RegisterAggregatedDiscoveryServiceServer(g, w.server) })
	var err error
	if w.bootstrap, err = json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{"server_uri": control, "channel_creds": []any{map[string]string{"type": "insecure"}}, "server_features": []string{"xds_v3"}}},
		"node":        map[string]any{"id": "grpc~127.0.0.1~client.shop~x"},
	}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *grpcMesh) serve(register func(*grpc.Server)) string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	g := grpc.NewServer(grpc.ForceServerCodecV2(xds.Codec()))
	register(g)
	go g.Serve(l)
	w.t.Cleanup(g.Stop)
	return l.Addr().String()
}

func (w *grpcMesh) greeter() string {
	return w.serve(func(g *grpc.Server) { healthpb.RegisterHealthServer(g, health.NewServer()) })
}

func (w *grpcMesh) set(parts ...mesh.Part) {
	w.builder.Set(parts...)
	w.feed.Publish(w.builder.Mesh(), nil)
}

// moveTo makes an address the endpoint for a service's port 81.
func (w *grpcMesh) moveTo(service, address string) {
	to := netip.MustParseAddrPort(address)
	w.set(&mesh.SliceSpec{Name: service + "-1", Namespace: "shop", Service: service, Ports: []mesh.SlicePort{{Name: "p81", Number: to.Port()}},
		Endpoints: []mesh.SliceEndpoint{{Addresses: []netip.Addr{to.Addr()}, Ready: true}}})
}

// dial returns a client for a target.
func (w *grpcMesh) dial(target string) healthpb.HealthClient {
	w.t.Helper()
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting(w.bootstrap)
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+target, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// reaches repeats a call until a server at this address answers it.
func (w *grpcMesh) reaches(c healthpb.HealthClient, want string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), process.Patience)
	defer cancel()
	process.Retry(w.t, func() error { // the client applies a change when it has received it
		var p peer.Peer
		_, err := c.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p), grpc.WaitForReady(true))
		if err == nil && p.Addr.String() == want {
			return nil
		}
		return fmt.Errorf("calls go to %v, %v; want %s", p.Addr, err, want)
	})
}

// A gRPC client without a proxy resolves its target by xDS (state of the world), and applies changes.
func TestGRPCClient(t *testing.T) {
	w := newGRPCMesh(t)
	first, second := w.greeter(), w.greeter()
	w.moveTo("greeter", first)
	client := w.dial("greeter:81")
	w.reaches(client, first)
	w.moveTo("greeter", second)
	w.reaches(client, second)
	w.reaches(w.dial("greeter"), second) // greeter has only one port for gRPC
	proxies := w.server.Proxies()
	if len(proxies) == 0 {
		t.Fatal("no proxies")
	}
	for _, p := range proxies {
		if p.Namespace != "shop" || len(p.Notes) != 1 { // the note is about plain text
			t.Errorf("proxy: %+v", p)
		}
		for _, ty := range p.Types {
			if ty.Rejected != nil || ty.Wildcard {
				t.Errorf("%s: %+v", ty.Type, ty)
			}
		}
	}
}

// If a target is not found, calls fail at once; without an answer the client would wait 15 s. The same
// channel works once the service exists.
func TestGRPCTargetThatIsNotFound(t *testing.T) {
	w := newGRPCMesh(t)
	w.set(service("many", "", "10.96.0.2", port(80, mesh.HTTP), port(9080, mesh.TCP), port(53, mesh.UDP)))
	notes := map[string]string{
		"nosuch:81":  `xds:///nosuch:81: no service "nosuch" is visible in the namespace shop`,
		"greeter:82": "xds:///greeter:82: greeter.shop.svc.cluster.local has the ports 80, 81: the target must name one of them",
		"many":       "xds:///many: many.shop.svc.cluster.local has the ports 80, 9080: the target must name one of them",
		"many:53":    "xds:///many:53: many.shop.svc.cluster.local has the ports 80, 9080: the target must name one of them",
	}
	for target, note := range notes {
		client := w.dial(target)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
		cancel()
		// gRPC Go reports the second reason if a call begins between two steps of its resolver.
		if got := fmt.Sprint(err); !strings.Contains(got, `could not find VirtualHost for "`+target) && !strings.Contains(got, "name resolver error: produced zero addresses") {
			t.Errorf("%s: %v", target, err)
		}
		if !slices.ContainsFunc(w.server.Proxies(), func(p xds.ProxyStatus) bool { return slices.Contains(p.Notes, note) }) {
			t.Errorf("%s: no note %q in %+v", target, note, w.server.Proxies())
		}
		if target == "nosuch:81" {
			w.set(service("nosuch", "", "10.96.0.3", port(81, mesh.GRPC)))
			at := w.greeter()
			w.moveTo("nosuch", at)
			w.reaches(client, at)
		}
	}
}

// A client of gRPC's C-core (Python, C++, Ruby, PHP) accepts all resources that are sent to it, and
// fails at once for a missing target.
func TestGRPCClientOfCCore(t *testing.T) {
	python := ""
	for _, program := range []string{"python3", "/usr/bin/python3"} { // Debian's package is for its own Python
		if exec.Command(program, "-c", "import grpc").Run() == nil {
			python = program
			break
		}
	}
	if python == "" {
		t.Skip("needs gRPC for Python, which make test-deps installs")
	}
	w := newGRPCMesh(t)
	w.moveTo("greeter", w.greeter())
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "client.py"), "greeter:81", "greeter", "nosuch:81")
	cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+string(w.bootstrap))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"greeter:81: OK\n", "greeter: OK\n", "nosuch:81: UNAVAILABLE"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// Debian's gRPC 1.51 reports the second reason, because it rejects a virtual host without routes.
	if !strings.Contains(string(out), "could not find VirtualHost for nosuch:81") && !strings.Contains(string(out), "No route found in the virtual host") {
		t.Errorf("no reason that names the service in\n%s", out)
	}
	t.Logf("%s", out)
}

// Clusters for gRPC clients contain no field that C-core rejects or does not support, because it would
// reject the whole cluster.
func TestGRPCClustersAreWhatCCoreSupports(t *testing.T) {
	v := snapshot(t, parts()...)
	p := client(withAgent, func(p *xds.Proxy) { p.GRPC = true })
	for _, name := range []string{web80, "outbound|81||web.shop.svc.cluster.local", "outbound|6379||db.shop.svc.cluster.local", "outbound|80||out.shop.svc.cluster.local"} {
		c := message(t, v.Named(p, xds.ClusterType, name).Resource).(*cluster.Cluster)
		if c.LbPolicy != cluster.Cluster_ROUND_ROBIN || c.TransportSocketMatches != nil || c.TransportSocket != nil || c.OutlierDetection != nil {
			t.Errorf("%s: %v", c.Name, c)
		}
		if dns := c.GetType() == cluster.Cluster_LOGICAL_DNS; !dns && (c.GetType() != cluster.Cluster_EDS || c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil) {
			t.Errorf("%s: neither endpoints by ADS nor a name", c.Name)
		}
	}
}
