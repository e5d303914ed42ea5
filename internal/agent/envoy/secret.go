package envoy

import (
	"time"

	"outrider.dev/internal/contract"
)

// Names of Envoy's secrets, and of the cluster that serves them: the agent, by its
// socket ([ControlPlane.Secrets]). Envoy must not read them from files: for each file that
// it watches it takes an inotify instance, of which a node has 128 for all processes of a
// user, and without one it aborts.
const (
	SecretName     = contract.WorkloadSecret // the certificate and its key
	RootsName      = contract.RootsSecret    // the trusted roots
	SecretsCluster = "sds-grpc"              // Istio's name
)

// secrets is the cluster of the agent's socket.
func secrets(socket string) cluster {
	return cluster{
		Name: SecretsCluster, Type: "STATIC", ConnectTimeout: seconds(time.Second),
		Protocols:  http2(nil),
		Assignment: assign(SecretsCluster, address{Pipe: &pipe{Path: socket}}),
	}
}

// secret is a subscription by name. All that name it share a subscription, if all
// say the same word for word: so package xds/resource does. No initial fetch timeout:
// without its secrets nothing of Envoy is ready, however long they take.
func secret(name string) map[string]any {
	service := envoyGRPC{Cluster: SecretsCluster}
	service.Retry.BackOff = backOff{Base: "0.01s", Max: "1s"}
	return map[string]any{"name": name, "sds_config": configSource{
		Version: "V3", FetchTimeout: "0s",
		API: &apiSource{Type: "GRPC", Version: "V3", NodeOnce: true, GRPCServices: []grpcService{{service}}},
	}}
}
