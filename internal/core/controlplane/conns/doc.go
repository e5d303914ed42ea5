// Package conns accepts the connections of a gRPC port, and limits them before a server spends anything on
// them.
//
// A connection passes three stages:
//
//   - It waits, and nothing is read from it.
//   - It is opening, once it has a slot: it makes its TLS handshake, and its client gets its first
//     configuration or certificate ([Settled]). The number of opening connections is limited to what the
//     processors can serve, so that each one is served before its client gives up, however many connect
//     together. Addresses take turns, and no work is done for a client that has closed its connection.
//   - It is open.
//
// The handshake assigns a connection to one of two servers: with a client certificate to
// [Listener.Identified], without one to [Listener.Anonymous]. The two have different limits: without an
// identity a client can only request a certificate or prove an identity in a call ([Identify]), after which
// the connection counts for that identity.
//
// Connections that wait, and those without an identity, are limited in total. If there are too many, the
// addresses with the most of them lose their oldest ones: an address that opens many only hurts itself.
// Connections with an identity are limited for each client. A client is an identity at an address, because
// many pods share a service account, and many hosts share an address.
package conns
