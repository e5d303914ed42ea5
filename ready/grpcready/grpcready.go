// Package grpcready reports the wait of outrider.dev/ready by gRPC's health service, for the gRPC probes of the kubelet and for clients that
// check health. It is a module of its own, so that outrider.dev/ready needs no gRPC. Its versions are
// tags ready/grpcready/vX.Y.Z; the policy of outrider.dev/ready applies to it.
package grpcready

import (
	"context"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"outrider.dev/ready"
)

// Report sets the services, and the server as a whole (the service ""), to NOT_SERVING, and to SERVING once the wait has
// ended well. It returns at once; ctx ends it earlier. After server.Shutdown it changes nothing more.
func Report(ctx context.Context, server *health.Server, w *ready.Waiter, services ...string) {
	set := func(status healthpb.HealthCheckResponse_ServingStatus) {
		for _, name := range append([]string{""}, services...) {
			server.SetServingStatus(name, status)
		}
	}
	set(healthpb.HealthCheckResponse_NOT_SERVING)
	go func() {
		select {
		case <-w.Done():
			set(healthpb.HealthCheckResponse_SERVING)
		case <-ctx.Done():
		}
	}()
}
