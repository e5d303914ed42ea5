package mesh

import (
	"encoding/json"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/xds"

	"outrider.dev/internal/mesh"
)

// A gRPC client without a proxy finds a service through the control plane by itself.
func TestGRPCClient(t *testing.T) {
	w := newWorld(t)
	p := w.pod("plain", "plain")
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(p.listen(9000))
	t.Cleanup(server.Stop)
	w.service("bare", "10.96.0.21", "plain", port(9000, mesh.GRPC))
	// The library's own connection to the control plane cannot be made inside a namespace.
	forward(t, w, func(local string) {
		config, err := json.Marshal(map[string]any{
			"xds_servers": []any{map[string]any{"server_uri": local, "channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []string{"xds_v3"}}},
			"node":        map[string]any{"id": fmt.Sprintf("grpc~%s~client.%s~x", p.v4, namespace)},
		})
		if err != nil {
			t.Fatal(err)
		}
		resolver, err := xds.NewXDSResolverWithConfigForTesting(config)
		if err != nil {
			t.Fatal(err)
		}
		check(t, "xds:///bare:9000", from(p), grpc.WithResolvers(resolver))
	})
}

// forward makes the control plane reachable from the test's own namespace.
func forward(t *testing.T, w *world, use func(local string)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go w.server.Serve(l)
	use(l.Addr().String())
}
