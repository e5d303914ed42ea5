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
		c, err := grpc.NewClient("passthrough:///"+to, from(s.client), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if streams[name], err = healthpb.NewHealthClient(c).Watch(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
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
	check(t, "passthrough:///10.96.1.1:9000", from(s.client))
	state.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	want(healthpb.HealthCheckResponse_NOT_SERVING)
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
