// Package wire defines the protocols between the agent and the control plane: unary calls of gRPC and their
// messages, the names of workloads, and the PEM files that both read and watch.
//
//	grpc.go, health.go    unary calls over net/http's HTTP/2
//	protobuf.go           fields of a message
//	certificates.go       Istio's certificate service
//	names.go              our service that resolves the mesh's names
//	identity.go           SPIFFE IDs as Istio writes them
//	pem.go, watch.go      certificates and keys in files, and changes of files
//
// The agent runs in every pod, so the package links neither grpc-go nor generated messages: they would be
// larger than the rest of the agent.
package wire
