package grpcready_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"outrider.dev/ready"
	"outrider.dev/ready/grpcready"
)

var quiet = ready.Log(slog.New(slog.DiscardHandler))

// A client that watches the health service sees the change to SERVING, and a grpc:// condition of another Waiter
// is met.
func TestTheWaitIsReported(t *testing.T) {
	open := make(chan struct{})
	w, err := ready.New(quiet, ready.Check("x", func(ctx context.Context) error {
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	s, h := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(s, h)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(s.Stop)
	grpcready.Report(t.Context(), h, w, "shop.Cart")

	c, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	watch, err := healthpb.NewHealthClient(c).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "shop.Cart"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_NOT_SERVING, healthpb.HealthCheckResponse_SERVING} {
		got, err := watch.Recv()
		if err != nil || got.Status != want {
			t.Fatalf("%v, %v; want %v", got, err, want)
		}
		if want == healthpb.HealthCheckResponse_NOT_SERVING {
			go w.Wait(t.Context())
			close(open)
		}
	}
	for _, target := range []string{"grpc://" + l.Addr().String(), "grpc://" + l.Addr().String() + "/shop.Cart"} {
		if err := ready.Wait(t.Context(), quiet, ready.On(target)); err != nil {
			t.Error(err)
		}
	}
}

func ExampleReport() {
	w, err := ready.New(quiet, ready.Check("cache", func(context.Context) error { return nil }))
	if err != nil {
		fmt.Println(err)
		return
	}
	server, h := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(server, h)
	grpcready.Report(context.Background(), h, w)
	// go server.Serve(listener)
	fmt.Println(w.Wait(context.Background()))
	// Output: <nil>
}
