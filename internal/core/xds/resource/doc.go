// Package resource turns a mesh into Envoy's resources, each built when the first proxy
// needs it, serialised once and shared by all.
//
// A proxy starts with a few listeners, whose number goes with the port numbers
// of the mesh, and no clusters. Everything else goes by the address that the application
// connects to: the cluster of 10.96.0.7:80 is called "http|10.96.0.7:80" for requests and
// "tcp|10.96.0.7:80" for bytes, and the proxy subscribes to it at the first connection. So
// no service has to be known before it is used, and one port number may be HTTP for one
// service and MySQL for the next. An address of no service is passed through.
//
// A service with HTTP routes or faults needs one more step: its cluster leads to an internal listener
// of the proxy, which subscribes to the virtual host of that service alone (route.go).
//
// A gRPC client without a proxy subscribes to the listener of its target (grpc.go).
//
// Package xds implements the protocol.
package resource
