// Package resource turns a mesh into what proxies are told: Envoy's resources, each built
// when the first proxy needs it, serialised once and shared by all.
//
// A proxy on demand starts with a few listeners, whose number goes with the port numbers
// of the mesh, and no clusters. Everything else goes by the address that the application
// connects to: the cluster of 10.96.0.7:80 is called "http|10.96.0.7:80" for requests and
// "tcp|10.96.0.7:80" for bytes, and is asked for at the first connection. So nothing has
// to be known of a service before it is used, and one port number may be HTTP for one
// service and MySQL for the next. What no service has is passed through.
//
// A service with HTTP routes costs one more step: its cluster leads to a listener inside
// the proxy, which asks for the virtual host of that service alone (route.go).
//
// A proxy that is not on demand gets all that it may see, in Istio's shape and with
// Istio's names (full.go); a gRPC client asks for the listener of its target (grpc.go).
//
// The rules that on-demand discovery needs, and which of Envoy's edges each avoids, are
// in the reference (on-demand-xds, section 1); package xds keeps those of the protocol.
package resource
