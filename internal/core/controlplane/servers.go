package controlplane

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/oklog/run"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/xds"
)

// Limits of gRPC, for each connection. What a listener accepts is limited in [conns].
const (
	// maxRequest lets a proxy connect again that uses 10,000 services: it sends
	// each name twice, once with a version: 350 bytes with the longest names that Kubernetes
	// has, so 3.5 MB for the endpoints.
	maxRequest = 4 << 20
	// An agent resolves the names of its pod's DNS queries, each with a call.
	maxCalls = 64
	// Without an identity there is one call at a time.
	maxAnonymousCalls = 4

	maxHeaders = 32 << 10 // a token has 16 KiB at most

	// window is how much of a request a client may send before it is read.
	window = 64 << 10
	// ageGrace is how long streams go on after the client was sent GOAWAY for its connection's
	// age; then it is closed. Istio's value.
	ageGrace = 10 * time.Second

	// prefaceTimeout is how long a client may take to begin with HTTP/2.
	prefaceTimeout = 10 * time.Second
)

// isDiscovery reports whether a method is one by which proxies get their configuration.
func isDiscovery(method string) bool {
	return strings.HasPrefix(method, "/"+discovery.AggregatedDiscoveryService_ServiceDesc.ServiceName+"/")
}

// A port is a listener with its servers of gRPC.
type port struct {
	listener   *conns.Listener
	identified *grpc.Server
	anonymous  *grpc.Server // nil without TLS
}

// serverOptions returns the options of every server.
func serverOptions(more ...grpc.ServerOption) []grpc.ServerOption {
	return append([]grpc.ServerOption{
		// Envoy sends a ping every few seconds; by default gRPC closes such a connection.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.ReadBufferSize(0), // a connection with TLS has a buffer already
		grpc.ConnectionTimeout(prefaceTimeout),
		grpc.Creds(conns.Credentials()), grpc.InTapHandle(conns.Tap),
		grpc.ForceServerCodecV2(xds.Codec()),
	}, more...)
}

// identifiedServer is for clients with an identity. A connection has an end, so that proxies
// spread over replicas, and show the certificates that they have now; gRPC adds a tenth of age
// or subtracts it, by chance, so that the proxies of a start do not connect again together.
func identifiedServer(age time.Duration, more ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(serverOptions(append([]grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionAge: age, MaxConnectionAgeGrace: ageGrace}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxCalls),
	}, more...)...)...)
}

// anonymousServer is for clients without a certificate: they get one, or prove an identity by
// a token, or get nothing. The listener bounds what they send before, and their time, since
// a stream that has an identity needs more of both.
func anonymousServer(more ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(serverOptions(append([]grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxAnonymousCalls),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.Unauthenticated, "the client sent no certificate; without one only a certificate can be requested, or configuration with a token")
		}),
	}, more...)...)...)
}

// openServers makes the servers of the port with mutual TLS, and of the one without TLS.
func (p *plane) openServers(certificates, tokens *ca.Service) {
	p.secure = port{
		identified: identifiedServer(p.o.ConnectionAge, grpc.StreamInterceptor(p.whileDeclared)),
		anonymous:  anonymousServer(grpc.StreamInterceptor(byToken{tokens, p.o.ConnectionAge}.serve)),
	}
	discovery.RegisterAggregatedDiscoveryServiceServer(p.secure.identified, p.byIdentity)
	discovery.RegisterAggregatedDiscoveryServiceServer(p.secure.anonymous, p.byIdentity)
	(&nameService{mesh: p.current, identify: p.authority.AuthenticatePeer}).register(p.secure.identified)
	certificates.Register(p.secure.identified)
	certificates.Register(p.secure.anonymous)
	if p.byClaim != nil {
		p.plain = port{identified: identifiedServer(p.o.ConnectionAge)}
		discovery.RegisterAggregatedDiscoveryServiceServer(p.plain.identified, p.byClaim)
	}
}

// listenOn makes a port's listener; without TLS if secure is nil.
func (p *plane) listenOn(l net.Listener, secure *tls.Config) *conns.Listener {
	return conns.New(l, conns.Options{
		TLS: secure, Identify: ca.ClientName, Proxies: p.o.ProxiesPerAddress, Log: p.o.Log,
		Opening: isDiscovery,
	})
}

// serve adds a port to the group. It answers once the mesh is complete: before that it
// would report existing resources as missing.
func (p *plane) serve(ctx context.Context, g *run.Group, on port) {
	g.Add(func() error {
		if !wait(ctx, p.mesh.Synced()) {
			return on.listener.Close()
		}
		go on.identified.Serve(on.listener.Identified()) // ends with the listener
		if on.anonymous != nil {
			go on.anonymous.Serve(on.listener.Anonymous())
		}
		return on.listener.Serve()
	}, func(error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for _, x := range p.discovery() {
			if err := x.Shutdown(ctx); err != nil {
				p.o.Log.Warn("ending streams", "error", err)
			}
		}
		on.listener.Close()
		on.identified.Stop()
		if on.anonymous != nil {
			on.anonymous.Stop()
		}
	})
}
