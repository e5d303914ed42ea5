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

	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/xds"
)

// Limits of gRPC for each connection. Package [conns] limits the number of connections.
const (
	// maxRequest is the maximum size of a request in bytes. It suffices for a proxy that reconnects and uses
	// 10,000 services. The proxy sends each name twice, once with a version; with the longest names that
	// Kubernetes allows these are 350 bytes, or 3.5 MB for all endpoints.
	maxRequest = 4 << 20
	// maxCalls suffices for an agent, which makes one call for each DNS query of its pod.
	maxCalls = 64
	// maxAnonymousCalls can be low, because clients without an identity make one call at a time.
	maxAnonymousCalls = 4

	maxHeaders = 32 << 10 // enough for a token, which may have 16 KiB

	// window limits the bytes of a request that a client may send before the server reads them.
	window = 64 << 10
	// ageGrace is the time for which streams continue after the connection has reached its age and its client
	// was sent GOAWAY. Then the connection is closed. It is Istio's value.
	ageGrace = 10 * time.Second

	// prefaceTimeout is the time in which a client must send the HTTP/2 preface.
	prefaceTimeout = 10 * time.Second
)

// isDiscovery reports whether method is one by which proxies get their configuration.
func isDiscovery(method string) bool {
	return strings.HasPrefix(method, "/"+discovery.AggregatedDiscoveryService_ServiceDesc.ServiceName+"/")
}

// A port is a listener with the gRPC servers for its connections.
type port struct {
	listener   *conns.Listener
	identified *grpc.Server
	anonymous  *grpc.Server // nil without TLS
}

// serverOptions returns the options that all servers share.
func serverOptions(more ...grpc.ServerOption) []grpc.ServerOption {
	return append([]grpc.ServerOption{
		// Envoy sends a ping every few seconds. With gRPC's default policy the server would close the
		// connection because of that.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.ReadBufferSize(0), // no buffer, because a TLS connection has one already
		grpc.ConnectionTimeout(prefaceTimeout),
		grpc.Creds(conns.Credentials()), grpc.InTapHandle(conns.Tap),
		grpc.ForceServerCodecV2(xds.Codec()),
	}, more...)
}

// identifiedServer returns a server for clients with an identity. The age of connections is limited, so that
// proxies spread over replicas and present their current certificates. gRPC varies the age by a tenth at
// random, so that proxies which started together do not reconnect together.
func identifiedServer(age time.Duration, more ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(serverOptions(append([]grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionAge: age, MaxConnectionAgeGrace: ageGrace}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxCalls),
	}, more...)...)...)
}

// anonymousServer returns a server for clients without a certificate: they request one, prove an identity by
// a token, or are refused. The listener limits their bytes and time until they have an identity. The server
// must not, because a stream with an identity needs more of both.
func anonymousServer(more ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(serverOptions(append([]grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxAnonymousCalls),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.Unauthenticated, "the client sent no certificate; without one only a certificate can be requested, or configuration with a token")
		}),
	}, more...)...)...)
}

// securePort creates the servers for the port with mutual TLS.
func (p *plane) securePort(certificates, tokens *ca.Service) port {
	out := port{
		identified: identifiedServer(p.o.ConnectionAge, grpc.StreamInterceptor(p.whileDeclared)),
		anonymous:  anonymousServer(grpc.StreamInterceptor(byToken{tokens, p.o.ConnectionAge}.serve)),
	}
	discovery.RegisterAggregatedDiscoveryServiceServer(out.identified, p.byIdentity)
	discovery.RegisterAggregatedDiscoveryServiceServer(out.anonymous, p.byIdentity)
	(&nameService{mesh: p.current, identify: p.authority.AuthenticatePeer}).register(out.identified)
	certificates.Register(out.identified)
	certificates.Register(out.anonymous)
	return out
}

// plainPort creates the server for the port without TLS.
func (p *plane) plainPort() port {
	out := port{identified: identifiedServer(p.o.ConnectionAge)}
	discovery.RegisterAggregatedDiscoveryServiceServer(out.identified, p.byClaim)
	return out
}

// listenOn returns the listener of a port; if secure is nil, it does not use TLS.
func (p *plane) listenOn(l net.Listener, secure *tls.Config) *conns.Listener {
	return conns.New(l, conns.Options{
		TLS: secure, Identify: ca.ClientName, Proxies: p.o.ProxiesPerAddress, Log: p.o.Log,
		Opening: isDiscovery,
	})
}

// serve adds a port to the group. The port answers only once the mesh is complete, because before that it
// would report existing resources as missing.
func (p *plane) serve(ctx context.Context, g *run.Group, on port) {
	g.Add(func() error {
		if !latest.Wait(ctx, p.mesh.Synced()) {
			return on.listener.Close()
		}
		go on.identified.Serve(on.listener.Identified()) // returns when the listener is closed
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
