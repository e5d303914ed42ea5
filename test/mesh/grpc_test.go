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

// A stream that is silent outlives the control plane, its return, and changes of the mesh.
func TestGRPCStream(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	state := health.NewServer()
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, state)
	go server.Serve(s.server.listen(9000))
	t.Cleanup(server.Stop)
	s.service("rpc", "10.96.0.20", "server", port(9000, mesh.GRPC))
	s.service("split", "10.96.0.21", "server", port(9000, mesh.GRPC))
	s.route("split", "split", 9000)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	streams := map[string]grpc.ServerStreamingClient[healthpb.HealthCheckResponse]{}
	for name, to := range map[string]string{"by address": "10.96.0.20:9000", "by route": "10.96.0.21:9000", "to a pod": s.server.v4.String() + ":9000"} {
		stream, err := s.client.healthClient(t, to).Watch(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		streams[name] = stream
	}
	want := func(status healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for name, stream := range streams {
			if got, err := stream.Recv(); got.GetStatus() != status {
				t.Errorf("%s: %v, %v; want %v", name, got, err, status)
			}
		}
	}
	want(healthpb.HealthCheckResponse_SERVING)
	s.down()
	time.Sleep(2500 * time.Millisecond) // the silence is what is tested
	s.up()
	s.service("new", "10.96.1.1", "server", port(9000, mesh.GRPC), port(9001, mesh.GRPC))
	s.pod("server2", "server")
	r, err := s.client.healthClient(t, "10.96.1.1:9000").Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("the new service: %v, %v", r, err)
	}
	state.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	want(healthpb.HealthCheckResponse_NOT_SERVING)
}

// healthClient is a gRPC client in a pod's application.
func (p *pod) healthClient(t *testing.T, to string) healthpb.HealthClient {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return p.dial(ctx, "", to) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return healthpb.NewHealthClient(c)
}
