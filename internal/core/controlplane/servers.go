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

// Limits of gRPC for each connection. Package [conns] limits the connections.
const (
	// maxRequest suffices for a proxy that reconnects and uses 10,000 services: it sends each name
	// twice, once with a version. With the longest names that Kubernetes allows these are 350 bytes, or
	// 3.5 MB for the endpoints.
	maxRequest = 4 << 20
	// An agent resolves its pod's DNS queries, with one call for each.
	maxCalls = 64
	// Clients without an identity make one call at a time.
	maxAnonymousCalls = 4

	maxHeaders = 32 << 10 // a token may take 16 KiB

	// window limits how much of a request a client may send before the server reads it.
	window = 64 << 10
	// ageGrace is how long streams continue after the connection has reached its age and its client was
	// sent GOAWAY; then the connection is closed. Istio's value.
	ageGrace = 10 * time.Second

	// prefaceTimeout is how long a client may take to send the HTTP/2 preface.
	prefaceTimeout = 10 * time.Second
)

// isDiscovery reports whether proxies get their configuration by a method.
func isDiscovery(method string) bool {
	return strings.HasPrefix(method, "/"+discovery.AggregatedDiscoveryService_ServiceDesc.ServiceName+"/")
}

// A port is a listener with its gRPC servers.
type port struct {
	listener   *conns.Listener
	identified *grpc.Server
	anonymous  *grpc.Server // nil without TLS
}

// serverOptions returns the options that all servers share.
func serverOptions(more ...grpc.ServerOption) []grpc.ServerOption {
	return append([]grpc.ServerOption{
		// Envoy sends a ping every few seconds; by default gRPC would close the connection for that.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.ReadBufferSize(0), // a TLS connection has a buffer already
		grpc.ConnectionTimeout(prefaceTimeout),
		grpc.Creds(conns.Credentials()), grpc.InTapHandle(conns.Tap),
		grpc.ForceServerCodecV2(xds.Codec()),
	}, more...)
}

// identifiedServer serves clients with an identity. Connections are limited in age, so that proxies
// spread over replicas and present their current certificates. gRPC varies the age by a tenth at
// random, so that proxies that started together do not reconnect together.
func identifiedServer(age time.Duration, more ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(serverOptions(append([]grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionAge: age, MaxConnectionAgeGrace: ageGrace}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxCalls),
	}, more...)...)...)
}

// anonymousServer serves clients without a certificate: they request one, prove an identity by a token,
// or are refused. The listener limits their bytes and time until they have an identity; the server
// cannot, because a stream with an identity needs more of both.
func anonymousServer(more ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(serverOptions(append([]grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxAnonymousCalls),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.Unauthenticated, "the client sent no certificate; without one only a certificate can be requested, or configuration with a token")
		}),
	}, more...)...)...)
}

// securePort makes the servers for the port with mutual TLS.
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

// plainPort makes the server for the port without TLS.
func (p *plane) plainPort() port {
	out := port{identified: identifiedServer(p.o.ConnectionAge)}
	discovery.RegisterAggregatedDiscoveryServiceServer(out.identified, p.byClaim)
	return out
}

// listenOn makes a port's listener; if secure is nil, it has no TLS.
func (p *plane) listenOn(l net.Listener, secure *tls.Config) *conns.Listener {
	return conns.New(l, conns.Options{
		TLS: secure, Identify: ca.ClientName, Proxies: p.o.ProxiesPerAddress, Log: p.o.Log,
		Opening: isDiscovery,
	})
}

// serve adds a port to the group. It answers only once the mesh is complete; earlier it would report
// existing resources as missing.
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
