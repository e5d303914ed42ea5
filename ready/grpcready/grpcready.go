// Package grpcready reports through gRPC's health service whether a wait of outrider.dev/ready has succeeded, for
// the kubelet's gRPC probes and for clients that check health. It is a separate module, so that
// outrider.dev/ready does not need gRPC. Its tags are ready/grpcready/vX.Y.Z; it has the versioning policy of
// outrider.dev/ready.
package grpcready

import (
	"context"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"outrider.dev/ready"
)

// Report sets the status of the services, and of the whole server (the service ""), to NOT_SERVING, and to
// SERVING once the wait has succeeded. It returns at once, and sets the later status in the background. After ctx
// ends, or after server.Shutdown, the status stays as it is.
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
