// Package sds gives the Envoy of this pod its secrets, over a Unix socket, by Envoy's
// secret discovery service.
//
// Files would need no server, but Envoy takes an inotify instance for each file that it
// watches, and a node has few for all its pods together.
//
// Spoken is the state-of-the-world form, StreamSecrets, on net/http's HTTP/2. A stream
// asks for secrets by name; each is told at once if it is there, else when it comes, and
// again when it changes. Envoy opens a stream for each name.
//
//	sds.go     the socket, the secrets, who may wait
//	stream.go  one stream
//	wire.go    its messages, as bytes
package sds
