// Package resource serves a mesh as Envoy's resources. Each is built when the first proxy needs it, by the
// packages listeners, routes and clusters, serialised once and shared by all. It promises to keep a resource
// until something changes on which the resource depends, and to report every such change.
//
// A proxy starts with a few listeners, whose number depends on the port numbers in the mesh, and no
// clusters. Everything else depends on the address to which the application connects: the cluster of
// 10.96.0.7:80 is called "http|10.96.0.7:80" for requests and "tcp|10.96.0.7:80" for bytes, and the
// proxy subscribes to it at the first connection. So a service need not be known before it is used, and
// one port number may be HTTP for one service and MySQL for another. Connections to addresses without a
// service are passed through.
//
// A service with HTTP routes or faults needs one more step: its cluster leads to an internal listener
// in the proxy, which subscribes only to the virtual host of that service.
//
// A gRPC client without a proxy subscribes to the listener of its target (grpc.go).
//
// Package xds implements the protocol.
package resource
