package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/xds"
)

// A Proxy behaves towards the control plane as Envoy does. It keeps its resources when it reconnects.
type Proxy struct {
	fleet    *Fleet
	number   int
	node     *core.Node
	tls      *tls.Config
	services []int // the services that the proxy uses
	want     want  // minimum number of resources in the first configuration

	have     map[string]map[string]string // versions of its resources, by type and name
	attempts atomic.Int64                 // number of TCP connections that a server has accepted
}

// Attempts returns the number of the proxy's TCP connections since [Fleet.Expected] was called last.
func (p *Proxy) Attempts() int64 { return p.attempts.Load() }

// want is the minimum number of resources in a first configuration, by type.
type want map[string]int

// newProxy makes a proxy, with a certificate such as an agent would request.
func newProxy(f *Fleet, number int, authority *ca.Authority) (*Proxy, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	signed, err := authority.Sign(&key.PublicKey, ca.Identity{TrustDomain: TrustDomain, Namespace: namespace, ServiceAccount: account(number)}, 0)
	if err != nil {
		return nil, err
	}
	leaf, _ := pem.Decode([]byte(signed.Chain[0])) // the root is not needed, because outriderd has it
	chain := tls.Certificate{PrivateKey: key, Certificate: [][]byte{leaf.Bytes}}
	roots := x509.NewCertPool()
	for _, root := range authority.Roots() {
		roots.AddCert(root)
	}
	metadata, err := structpb.NewStruct(map[string]any{
		contract.MetadataServiceAccount: account(number), contract.MetadataWorkload: account(number),
		contract.MetadataAddresses: podIP(number), contract.MetadataSecrets: contract.SecretsCluster,
	})
	if err != nil {
		return nil, err
	}
	return &Proxy{
		fleet: f, number: number, have: map[string]map[string]string{},
		node: &core.Node{Id: fmt.Sprintf("sidecar~%s~app-%d.%s~%[3]s.svc.cluster.local", podIP(number), number, namespace), Metadata: metadata},
		tls: &tls.Config{
			Certificates: []tls.Certificate{chain}, RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h2"},
			CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}, ClientSessionCache: tls.NewLRUClientSessionCache(1), // as Envoy does
		},
	}, nil
}

// follow connects repeatedly, with Envoy's back-off, until ctx ends.
func (p *Proxy) follow(ctx context.Context, address string) {
	pause := contract.ControlPlaneRetryBase
	for ctx.Err() == nil {
		before := p.fleet.configured.Load()
		p.run(ctx, address) // the error is not needed: attempts are counted
		if before.has(p.number) {
			pause = contract.ControlPlaneRetryBase
		}
		select {
		case <-time.After(mathrand.N(pause)):
		case <-ctx.Done():
		}
		pause = min(2*pause, contract.ControlPlaneRetryMax)
	}
}

// dial makes a TLS connection. Each proxy has its own address, because the control plane's limits apply to
// each address.
func (p *Proxy) dial(ctx context.Context, address string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, contract.ControlPlaneConnectTimeout)
	defer cancel()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(p.number>>8), byte(p.number))}}
	raw, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	p.attempts.Add(1)
	secure := tls.Client(raw, p.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return secure, nil
}

// run connects and follows the stream, until the connection or ctx ends.
func (p *Proxy) run(ctx context.Context, address string) error {
	secure, err := p.dial(ctx, address)
	if err != nil {
		return err
	}
	defer secure.Close()
	once := make(chan net.Conn, 1)
	once <- secure
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, net.ErrClosed
			}
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithReadBufferSize(2<<10), grpc.WithWriteBufferSize(4<<10)) // small, for thousands of connections
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	answered := map[string]bool{} // types of which a response has arrived
	for requests := p.first(); ; {
		for _, r := range requests {
			if err := stream.Send(r); err != nil {
				return err
			}
		}
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		requests = p.take(m)
		if answered[m.GetTypeUrl()] = true; answered[xds.ClusterType] && answered[xds.ListenerType] && p.complete() {
			p.fleet.configured.Load().note(p.number)
		}
	}
}

// first returns the requests at the beginning of a stream.
func (p *Proxy) first() []*discovery.DeltaDiscoveryRequest {
	var clusters, endpoints []string
	for _, s := range p.services {
		clusters = append(clusters, clusterOf(s))
	}
	for cluster := range p.have[xds.ClusterType] { // any order: names in a request
		if name, ok := p.endpointsFor(xds.ClusterType, cluster); ok {
			endpoints = append(endpoints, name)
		}
	}
	request := func(typeURL string, names ...string) *discovery.DeltaDiscoveryRequest {
		return &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, InitialResourceVersions: p.have[typeURL], ResourceNamesSubscribe: names}
	}
	var out []*discovery.DeltaDiscoveryRequest
	if len(p.have[xds.ClusterType]) > 0 { // the proxy reconnects
		out = append(out, request(xds.ClusterType, append(clusters, "*")...), request(xds.ListenerType), request(xds.EndpointType, endpoints...))
	} else { // the application has just made its first connections
		out = append(out, request(xds.ClusterType), request(xds.ListenerType), request(xds.ClusterType, clusters...))
	}
	out[0].Node = p.node
	return out
}

// take returns the requests that follow a message: the ACK and, for new clusters, the subscription
// to their endpoints, as Envoy does.
func (p *Proxy) take(m *discovery.DeltaDiscoveryResponse) []*discovery.DeltaDiscoveryRequest {
	out := []*discovery.DeltaDiscoveryRequest{{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()}}
	have := p.have[m.GetTypeUrl()]
	if have == nil {
		have = map[string]string{}
		p.have[m.GetTypeUrl()] = have
	}
	var subscribe []string
	for _, r := range m.GetResources() {
		name := r.GetName()
		_, had := have[name]
		have[name] = r.GetVersion()
		if had {
			continue
		}
		if endpoints, ok := p.endpointsFor(m.GetTypeUrl(), name); ok {
			subscribe = append(subscribe, endpoints)
		}
	}
	if len(subscribe) > 0 {
		out = append(out, &discovery.DeltaDiscoveryRequest{TypeUrl: xds.EndpointType, ResourceNamesSubscribe: subscribe})
	}
	return out
}

// endpointsFor returns the name of a cluster's endpoints. A real proxy reads the name from the cluster.
func (p *Proxy) endpointsFor(typeURL, cluster string) (string, bool) {
	if typeURL != xds.ClusterType {
		return "", false
	}
	i := slices.IndexFunc(p.services, func(s int) bool { return clusterOf(s) == cluster })
	if i < 0 {
		return "", false
	}
	return endpointsOf(p.services[i]), true
}

func (p *Proxy) complete() bool {
	for typeURL, n := range p.want {
		if len(p.have[typeURL]) < n {
			return false
		}
	}
	return true
}
