package resource_test

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	grpcxds "google.golang.org/grpc/xds"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds"
	"outrider.dev/internal/xds/resource"
)

// A gRPC client without a proxy resolves its target by xDS (state of the world), and
// follows a change.
func TestGRPCClient(t *testing.T) {
	serve := func(register func(*grpc.Server)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer()
		register(g)
		go g.Serve(l)
		t.Cleanup(g.Stop)
		return l.Addr().String()
	}
	builder, feed := mesh.NewBuilder(mesh.Config{}), &mesh.Feed{}
	builder.Set(service("greeter", "", "10.96.0.1", port(81, mesh.GRPC)))
	moveTo := func(address string) {
		to := netip.MustParseAddrPort(address)
		builder.Set(&mesh.SliceSpec{Name: "greeter-1", Namespace: "shop", Service: "greeter", Ports: []mesh.SlicePort{{Name: "p81", Number: to.Port()}},
			Endpoints: []mesh.SliceEndpoint{{Addresses: []netip.Addr{to.Addr()}, Ready: true}}})
		feed.Publish(builder.Mesh(), nil)
	}
	greeter := func(g *grpc.Server) { healthpb.RegisterHealthServer(g, health.NewServer()) }
	first, second := serve(greeter), serve(greeter)
	moveTo(first)
	server := xds.New(xds.Options{Source: resource.New(feed), Authenticate: xds.ByClaim})
	control := serve(func(g *grpc.Server) { discovery.RegisterAggregatedDiscoveryServiceServer(g, server) })

	bootstrap, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{"server_uri": control, "channel_creds": []any{map[string]string{"type": "insecure"}}, "server_features": []string{"xds_v3"}}},
		"node":        map[string]any{"id": "grpc~127.0.0.1~client.shop~x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///greeter:81", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, want := range []string{first, second} {
		moveTo(want)
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			ctx, cancel := context.WithDeadline(t.Context(), end)
			var p peer.Peer
			_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p), grpc.WaitForReady(true))
			cancel()
			if err == nil && p.Addr.String() == want {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("calls go to %v, %v; want %s", p.Addr, err, want)
			}
		}
	}
	proxies := server.Proxies()
	if len(proxies) != 1 || proxies[0].OnDemand || proxies[0].Namespace != "shop" {
		t.Fatalf("proxies: %+v", proxies)
	}
	for _, ty := range proxies[0].Types {
		if ty.Rejected != nil || ty.Wildcard {
			t.Errorf("%s: %+v", ty.Type, ty)
		}
	}
}
