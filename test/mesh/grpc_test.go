package mesh

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"outrider.dev/internal/mesh"
)

// gRPC goes through both proxies as HTTP/2.
func TestGRPC(t *testing.T) {
	s := newShop(t)
	serve := func(p *pod) {
		server := grpc.NewServer()
		healthpb.RegisterHealthServer(server, health.NewServer())
		go server.Serve(p.listen(9000))
		t.Cleanup(server.Stop)
	}
	serve(s.server)
	serve(s.plain)
	s.service("rpc", "10.96.0.20", "server", port(9000, mesh.GRPC))
	s.service("bare", "10.96.0.21", "plain", port(9000, mesh.GRPC))
	check(t, "passthrough:///10.96.0.20:9000", from(s.client))
	check(t, "passthrough:///10.96.0.21:9000", from(s.client))
}

// check makes one call.
func check(t *testing.T, target string, o ...grpc.DialOption) {
	t.Helper()
	c, err := grpc.NewClient(target, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%s: %v, %v", target, r, err)
	}
}

func from(p *pod) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return p.dial(ctx, "", to) })
}
