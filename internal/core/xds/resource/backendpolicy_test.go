package resource_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/utils/ptr"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/test/process"
)

// everyField returns a policy in which each field has a different value.
func everyField() mesh.BackendPolicy {
	return mesh.BackendPolicy{
		Limits:   mesh.Limits{Connections: 11, PendingRequests: 12, Requests: 13, Retries: ptr.To[uint32](0), RequestsPerConnection: 14, ConnectTimeout: 15 * time.Second, IdleTimeout: 16 * time.Second},
		Outliers: mesh.Outliers{Errors5xx: ptr.To[uint32](21), GatewayErrors: ptr.To[uint32](22), LocalFailures: ptr.To[uint32](0), Interval: 24 * time.Second, EjectionTime: 25 * time.Second, EjectionPercent: ptr.To[uint32](80)},
		Faults:   mesh.Faults{Delay: 31 * time.Millisecond, DelayPercent: 0.5, HTTPStatus: 418, AbortPercent: 33},
	}
}

func budgetFor(service string) *mesh.BackendPolicySpec {
	return &mesh.BackendPolicySpec{Kind: mesh.KindTrafficPolicy, Name: service, Namespace: "shop", Targets: []mesh.PolicyTarget{{Name: service}},
		Settings: mesh.BackendPolicy{Budget: &mesh.RetryBudget{Percent: 41, Interval: 42 * time.Second, Least: 43}}}
}

// A policy has no effect on other services, nor on services that a proxy cannot see.
func TestPolicyOfOneService(t *testing.T) {
	hidden := policyFor("hidden", everyField())
	hidden.Namespace = "vault"
	before, after := snapshot(t, parts()...), snapshot(t, append(parts(), policyFor("web", everyField()), budgetFor("web"), hidden)...)
	for name, same := range map[string]bool{
		"http|10.96.0.1:80": false, "tcp|10.96.0.1:82": false, web80: false,
		"http|10.96.0.2:80": true, old80: true, "tcp|10.96.0.3:6379": true, "http|10.96.0.66:80": true, "outbound|80||hidden.vault.svc.cluster.local": true,
	} { // any order: each is checked by itself
		is := text(t, flatten([]xds.Bundle{before.Named(client(), xds.ClusterType, name)}, xds.ClusterType))
		got := text(t, flatten([]xds.Bundle{after.Named(client(), xds.ClusterType, name)}, xds.ClusterType))
		if (is == got) != same {
			t.Errorf("%s is as without policies: %t\n%s", name, is == got, got)
		}
	}
}

// A gRPC client without a proxy applies faults and the limit of requests, even if they are set while it
// is running.
func TestPoliciesOfGRPCClients(t *testing.T) {
	w := newGRPCMesh(t)
	w.moveTo("greeter", w.greeter())
	client := w.dial("greeter:81")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name, want string // expected part of a call's error; empty: none
		settings   mesh.BackendPolicy
	}{
		{"a fault", "desc = RPC terminated due to fault injection", mesh.BackendPolicy{Faults: mesh.Faults{GRPCStatus: 10, AbortPercent: 100}}},
		{"none", "", mesh.BackendPolicy{}},
		{"one request at a time", "max requests 1 exceeded", mesh.BackendPolicy{Limits: mesh.Limits{Requests: 1}}},
	} {
		w.set(policyFor("greeter", step.settings))
		process.Retry(t, func() error { // the client applies a change when it has received it
			_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
			if (step.want == "") == (err == nil) && (err == nil || strings.Contains(err.Error(), step.want)) {
				return nil
			}
			return fmt.Errorf("%s: %v; want %q", step.name, err, step.want)
		})
	}
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("above the limit: %v", err)
	}
}
