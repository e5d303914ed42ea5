package mesh

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/core/mesh"
)

// gRPC calls are routed by method. A call that matches no rule ends with the gRPC status Unimplemented, and a call
// whose backend is missing with Unavailable. Other HTTP requests get HTTP statuses.
func TestGRPCRoutes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(s.server.listen(9000))
	t.Cleanup(server.Stop)
	s.service("rpc", "10.96.0.22", "server", port(9000, mesh.GRPC))
	const name = "grpc.health.v1.Health"
	to := func(service string) []mesh.Backend {
		return []mesh.Backend{{Namespace: namespace, Name: service, Port: 9000, Weight: 1}}
	}
	header := []mesh.Pair{{Name: "x-to", Text: mesh.Text{Kind: mesh.Exact, Value: "nowhere"}}}
	s.source.set(&mesh.RouteSpec{
		Name: "rpc", Namespace: namespace, GRPC: true, Parents: []mesh.Parent{{Namespace: namespace, Name: "rpc"}},
		Rules: []mesh.Route{
			{Matches: []mesh.Match{{Call: &mesh.Call{Kind: mesh.RegExp, Service: "grpc\\..*", Method: "C[a-z]+k"}}}, Backends: to("rpc"),
				Filters: []mesh.Filter{{ResponseHeaders: &mesh.Headers{Set: [][2]string{{"x-route", "by pattern"}}}}}},
			{Matches: []mesh.Match{{Call: &mesh.Call{Kind: mesh.Exact, Service: name, Method: "Check"}, Headers: header}}, Backends: to("nowhere")},
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := s.client.healthClient(t, "10.96.0.22:9000")
	var got metadata.MD
	r, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true), grpc.Header(&got))
	if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING || !slices.Equal(got["x-route"], []string{"by pattern"}) {
		t.Errorf("a call with a rule: %v, %v, %v", r, err, got)
	}
	_, err = client.Check(metadata.AppendToOutgoingContext(ctx, "x-to", "nowhere"), &healthpb.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the backend shop/nowhere:9000 of the route shop/rpc/1 does not exist") {
		t.Errorf("without its backend: %v", err)
	}
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("without a rule: %v", err)
	}
	if got := get(s.client.client(), "http://10.96.0.22:9000/"+name+"/Check"); !strings.HasPrefix(got, "404 ") {
		t.Errorf("a request that is no call: %s", got)
	}
}

// A gRPC stream without messages is not cut when the control plane is lost, when it is reachable again, or when the
// mesh changes.
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
	time.Sleep(2500 * time.Millisecond) // the silence under test
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

// healthClient returns a client of the gRPC health service that calls as the pod's application.
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
