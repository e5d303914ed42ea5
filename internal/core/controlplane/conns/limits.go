package conns

import (
	"net/netip"
	"time"

	"golang.org/x/time/rate"
)

// Limits of connections without an identity.
const (
	// maxWaiting connections wait for their handshake: all proxies of a large mesh, after a restart.
	// Each costs 4 KiB, and 8 KiB of the kernel if its client sends as much as it can.
	maxWaiting = 10_000
	// Of them so many for each processor are opening: from before the handshake until the client
	// has its first configuration, which takes 2 ms of a processor. More would not be faster, and
	// have their clients wait for answers that they expect within seconds.
	openingPerProcessor = 64
	// slowOpening is when an opening ends in any case: a client that is slow goes on without a
	// slot, and its handshake keeps its own time. With 128 slots, 128 connections a second are
	// opened even while clients that stop in the middle have all of them.
	slowOpening = time.Second
	// maxAnonymous connections have made their handshake without a certificate; they cost some
	// 40 MB.
	maxAnonymous = 512
	// anonymousLife suffices for a certificate, or for the token of a stream, with an answer of
	// the API server each; maxAnonymousBytes for a few of them: a token has 16 KiB at most.
	anonymousLife     = 20 * time.Second
	maxAnonymousBytes = 192 << 10
	// handshakeTimeout is for a node with an overloaded CPU; a handshake takes 2 round trips. A
	// client may take as long before it sends anything; the wait for a slot counts for neither.
	handshakeTimeout = 10 * time.Second
	// An address may open so many connections at once, and a second: a handshake costs the
	// server 0.5 ms, and a node with 250 pods has an address for each.
	addressBurst, addressRate = 200, 50
	// An address may make so many calls without an identity: a request for a certificate, and
	// then for the next one.
	anonymousCallBurst, anonymousCallRate = 200, 50
	// What connections without an identity send is read by turns of their addresses: so many bytes
	// for each processor and proxy in any readTime, 8 MiB a second with two processors. Small
	// frames of HTTP/2, which take 0.1 us a byte, then take one of the two.
	readBytes, readTime = 5 << 10, 10 * time.Millisecond
	// socketBuffer is what the kernel keeps of what a client has sent and the server not read:
	// without it 6 MiB of each connection, which count for the memory of the container.
	// helloBuffer is that before the handshake is over, whose messages have 2 KiB.
	socketBuffer, helloBuffer = 64 << 10, 4 << 10
	// maxIdle bounds the addresses, and the clients, whose rate is known.
	maxIdle = 10_000
)

// Limits of a client, for each proxy that it may have.
const (
	// A proxy has one connection for its configuration, its agent one for names and now and
	// then one for a certificate; connections that a broken network left are closed after 40 s.
	connectionsPerProxy = 4
	// A proxy that uses 10,000 services sends 4 MB when it connects again, mostly names. The
	// rate is that of a proxy that uses 10,000 services anew in 4 s.
	bytesBurstPerProxy, bytesRatePerProxy = 1 << 20, 256 << 10
	// Most calls are an agent's for the names of its pod's DNS queries, answers to which it
	// keeps for 5 or 30 s.
	callBurstPerProxy, callRatePerProxy = 250, 60
)

// A client, or an address without an identity, may request so many certificates at once, and a
// second: each costs a signature, and a token a review by the API server. A stream that begins
// with a token counts as one. A node that restarts
// requests one for each of its pods, and each pod has its own address; hosts behind one address
// share the limit only before they have a certificate.
const certificateBurst, certificateRate = 100, 20

// minBytesBurst is enough for one proxy with 10,000 services, whatever the number of proxies.
const minBytesBurst, minBytesRate = 8 << 20, 1 << 20

// block is the address by which connections are counted: of IPv6 the /64, within which a
// machine has any address.
func block(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is6() {
		p, _ := a.WithZone("").Prefix(64)
		return p.Addr()
	}
	return a
}

// An address is what is known of one from which connections came without an identity, now or recently.
type address struct {
	limiters
	rate          *rate.Limiter
	authenticated bool // a client with an identity was there, or see [Authenticated]
}

// A client is an identity at an address.
type client struct {
	limiters
	identity    string
	connections int
}

// limiters are of what the connections of an address without an identity, or of a client, may
// send together.
type limiters struct{ bytes, calls, certificates *rate.Limiter }

type clientKey struct {
	identity string
	address  netip.Addr
}

func newLimiters(proxies int, calls *rate.Limiter) limiters {
	return limiters{
		bytes: rate.NewLimiter(rate.Limit(max(proxies*bytesRatePerProxy, minBytesRate)), max(proxies*bytesBurstPerProxy, minBytesBurst)),
		calls: calls, certificates: rate.NewLimiter(certificateRate, certificateBurst),
	}
}

func newClient(identity string, proxies int) *client {
	return &client{identity: identity, limiters: newLimiters(proxies, rate.NewLimiter(rate.Limit(proxies*callRatePerProxy), proxies*callBurstPerProxy))}
}
