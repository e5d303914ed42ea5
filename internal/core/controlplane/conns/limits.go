package conns

import (
	"net/netip"
	"time"

	"golang.org/x/time/rate"
)

// Limits of connections without an identity.
const (
	// maxWaiting is the maximum number of connections that wait for their handshake: enough for all proxies
	// of a large mesh after a restart. Each costs 4 KiB, and 8 KiB of the kernel if its client sends as much
	// as it can.
	maxWaiting = 10_000
	// openingPerProcessor limits the connections that are opening at the same time: from before the handshake
	// until the client has its first configuration, which takes 2 ms of a processor. With a higher limit the
	// processors would open no more connections per second, and each client would wait longer for answers
	// that it expects within seconds.
	openingPerProcessor = 64
	// slowOpening is the longest time for which an opening connection holds its slot. A slower client
	// continues without a slot, and its handshake keeps its own timeout. So even if clients that stop in the
	// middle hold all of 128 slots, 128 connections are opened per second.
	slowOpening = time.Second
	// maxAnonymous is the maximum number of connections without a certificate, after their handshake.
	// Together they cost some 40 MB.
	maxAnonymous = 512
	// anonymousLife limits the time without an identity. It suffices to get a certificate or to begin a
	// stream with a token, each of which needs an answer of the API server. maxAnonymousBytes limits the
	// bytes in that time. It suffices for several tokens of at most 16 KiB.
	anonymousLife     = 20 * time.Second
	maxAnonymousBytes = 192 << 10
	// handshakeTimeout allows for a node with an overloaded CPU; a handshake takes 2 round trips. It also
	// limits the time until the client's first bytes. Neither includes the wait for a slot.
	handshakeTimeout = 10 * time.Second
	// addressBurst is the number of connections that an address may open at once, addressRate the number per
	// second. A handshake costs the server 0.5 ms. The limits can be low, because each pod of a node has its
	// own address.
	addressBurst, addressRate = 200, 50
	// anonymousCallBurst and anonymousCallRate limit an address's calls without an identity. Few are needed:
	// a client requests one certificate, and later the next one.
	anonymousCallBurst, anonymousCallRate = 200, 50
	// Connections without an identity are read by turns of their addresses: at most readBytes in any
	// readTime, multiplied by the processors and by [Options.Proxies]; with two processors that is 8 MiB per
	// second by default. If all of that is small HTTP/2 frames, which take 0.1 us per byte, it occupies one
	// of the two processors.
	readBytes, readTime = 5 << 10, 10 * time.Millisecond
	// socketBuffer limits the bytes that the kernel buffers before the server reads them. The kernel's
	// default is 6 MiB for each connection, which counts towards the container's memory. helloBuffer is the
	// limit during the handshake, whose messages have 2 KiB.
	socketBuffer, helloBuffer = 64 << 10, 4 << 10
	// maxIdle is the maximum number of addresses without connections, and of such clients, that are remembered.
	maxIdle = 10_000
)

// Limits of a client, each multiplied by the number of proxies that it may have.
const (
	// connectionsPerProxy is more than the usual number: a proxy has one connection for its configuration;
	// its agent has one for names and occasionally one for a certificate. Connections over a broken network
	// are closed after 40 s.
	connectionsPerProxy = 4
	// bytesBurstPerProxy and bytesRatePerProxy limit the bytes that are read. A proxy that uses 10,000
	// services sends 4 MB when it reconnects, mostly names. At this rate it can subscribe to 10,000 new
	// services in 4 s.
	bytesBurstPerProxy, bytesRatePerProxy = 1 << 20, 256 << 10
	// callBurstPerProxy and callRatePerProxy limit calls. Most calls come from an agent, for DNS queries of
	// its pod. It caches the answers for 5 or 30 s.
	callBurstPerProxy, callRatePerProxy = 250, 60
)

// certificateBurst is the number of certificates that a client, or an address without an identity, may
// request at once, certificateRate the number per second. Each certificate costs a signature, and each token
// a review by the API server; a stream that begins with a token counts as a request. After a restart a node
// requests one for each of its pods, each of which has its own address. Hosts behind one address share the
// limit only until they have a certificate.
const certificateBurst, certificateRate = 100, 20

// minBytesBurst and minBytesRate suffice for a proxy with 10,000 services, even if a client has only one
// proxy.
const minBytesBurst, minBytesRate = 8 << 20, 1 << 20

// block returns the address by which connections are counted. For IPv6 that is the /64 prefix, because a
// machine can use any address within it.
func block(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is6() {
		p, _ := a.WithZone("").Prefix(64)
		return p.Addr()
	}
	return a
}

// An address is the state of a client address that has, or recently had, connections without an identity.
type address struct {
	limiters
	rate          *rate.Limiter
	authenticated bool // a client with an identity connected from it, or [Authenticated] was called
}

// queue returns the index of the gate at which connections from the address wait: 1 if it is authenticated,
// otherwise 0.
func (o *address) queue() int {
	if o.authenticated {
		return 1
	}
	return 0
}

// A client is the state of an identity at an address.
type client struct {
	limiters
	identity    string
	connections int
}

// limiters limit the total of what one client sends, or all connections without an identity from one address.
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
