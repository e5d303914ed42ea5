// Package conns accepts the connections of a gRPC port, and limits them before a server
// spends anything on them.
//
// A connection passes three stages. First it waits, and nothing is read from it. At its turn it
// is opening: it makes its TLS handshake, and its client gets its first configuration or certificate
// ([Settled]). So many are opening as the processors can serve at once: work that is begun is
// finished before its client gives up, however many connect together. Turns are by addresses,
// and nothing is done for a client that has closed its connection.
//
// By its handshake it belongs to one of two servers: connections with a client certificate to
// [Listener.Identified], the others to [Listener.Anonymous]. So the two have different limits:
// without an identity a certificate can be requested, or a call may prove one ([Identify]), and
// the connection then counts for that client.
//
// Connections that wait, and those without an identity, are limited in total. If there are too
// many, the oldest one of the address that has most is closed: an address that opens many
// closes its own.
// Connections with an identity are limited for each client, which is an identity at an
// address: many pods share a service account, and many hosts share an address.
package conns
