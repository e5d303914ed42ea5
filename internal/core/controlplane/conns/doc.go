// Package conns accepts the connections of a gRPC port, and limits them before a server spends anything
// on them.
//
// A connection passes three stages. First it waits, and nothing is read from it. When it gets a slot it
// is opening: it makes its TLS handshake, and its client gets its first configuration or certificate
// ([Settled]). Only as many connections are opening as the processors can serve at once, so that work
// that was begun ends before its client gives up, however many connect together. Addresses take turns,
// and no work is done for a client that has closed its connection. Then it is open.
//
// The handshake assigns a connection to one of two servers: with a client certificate to
// [Listener.Identified], without one to [Listener.Anonymous]. The two have different limits: without an
// identity a client can only request a certificate or prove an identity in a call ([Identify]), after
// which the connection counts for that identity.
//
// Connections that wait, and those without an identity, are limited in total. If there are too many,
// the addresses with the most of them lose their oldest ones: an address that opens many only hurts itself.
// Connections with an identity are limited for each client, which is an identity at an address, because
// many pods share a service account, and many hosts share an address.
package conns
