// Package conns accepts the connections of a gRPC port, and limits them before a server
// spends anything on them.
//
// A connection begins without an identity: it is accepted, and makes its TLS handshake in
// a bounded time. Then it belongs to one of two servers: connections with a client
// certificate to [Listener.Identified], the others to [Listener.Anonymous]. So the two
// have different limits: without an identity only a certificate can be requested.
//
// Connections without an identity are few in total. If there are too many, the oldest one
// of the address that has most is closed: an address that opens many closes its own.
// Connections with an identity are limited for each client, which is an identity at an
// address: many pods share a service account, and many hosts share an address.
package conns
