package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/contract"
	"outrider.dev/internal/controlplane/ca"
	"outrider.dev/internal/xds"
)

// A proxy is what Envoy is to the control plane: one connection with a certificate of its
// own, one delta stream, each message accepted. Resources are not decoded.
type proxy struct {
	number   int
	node     *core.Node
	tls      *tls.Config
	services []int // that it uses, on demand; none: full push
	want     want  // its first configuration

	complete func()                            // called once, when it has that
	received func(endpoints string, proxy int) // called for each resource of endpoints

	have map[string]map[string]bool // by type, name
}

// want is the number of resources that a first configuration has at least, by type.
type want map[string]int

// newProxy makes one, with the certificate that its agent would have got.
func newProxy(number int, authority *ca.Authority) (*proxy, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	signed, err := authority.Sign(&key.PublicKey, ca.Identity{TrustDomain: trustDomain, Namespace: namespace, ServiceAccount: account(number)}, 0)
	if err != nil {
		return nil, err
	}
	leaf, _ := pem.Decode([]byte(signed.Chain[0])) // outriderd has the root
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
	return &proxy{
		number: number,
		node:   &core.Node{Id: fmt.Sprintf("sidecar~%s~app-%d.%s~%[3]s.svc.cluster.local", podIP(number), number, namespace), Metadata: metadata},
		tls:    &tls.Config{Certificates: []tls.Certificate{chain}, RootCAs: roots, ServerName: "localhost"},
	}, nil
}

// run connects and follows, until ctx ends.
func (p *proxy) run(ctx context.Context, address string) error {
	// Limits are for each address, and a proxy has one of its own.
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(p.number>>8), byte(p.number))}}
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(p.tls)),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return from.DialContext(ctx, "tcp", to) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10)) // two thousand share this process
	if err != nil {
		return err
	}
	defer connection.Close()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	p.have = map[string]map[string]bool{}
	first := []*discovery.DeltaDiscoveryRequest{
		{Node: p.node, TypeUrl: xds.ClusterType},
		{TypeUrl: xds.ListenerType},
	}
	if len(p.services) > 0 { // as by the first connections of the application
		var names []string
		for _, s := range p.services {
			names = append(names, clusterOf(s))
		}
		first = append(first, &discovery.DeltaDiscoveryRequest{TypeUrl: xds.ClusterType, ResourceNamesSubscribe: names})
	} else {
		first = append(first, &discovery.DeltaDiscoveryRequest{TypeUrl: xds.RouteType, ResourceNamesSubscribe: []string{"80"}})
	}
	for _, request := range first {
		if err := stream.Send(request); err != nil {
			return err
		}
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, request := range p.take(m) {
			if err := stream.Send(request); err != nil {
				return err
			}
		}
	}
}

// take returns the requests after a message: the ACK, and for new clusters the subscription
// to their endpoints, as Envoy does.
func (p *proxy) take(m *discovery.DeltaDiscoveryResponse) []*discovery.DeltaDiscoveryRequest {
	out := []*discovery.DeltaDiscoveryRequest{{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()}}
	have := p.have[m.GetTypeUrl()]
	if have == nil {
		have = map[string]bool{}
		p.have[m.GetTypeUrl()] = have
	}
	var subscribe []string
	for _, r := range m.GetResources() {
		name := r.GetName()
		if m.GetTypeUrl() == xds.EndpointType {
			p.received(name, p.number)
		}
		if have[name] {
			continue
		}
		have[name] = true
		if endpoints, ok := p.endpointsFor(m.GetTypeUrl(), name); ok {
			subscribe = append(subscribe, endpoints)
		}
	}
	if len(subscribe) > 0 {
		out = append(out, &discovery.DeltaDiscoveryRequest{TypeUrl: xds.EndpointType, ResourceNamesSubscribe: subscribe})
	}
	if p.complete != nil && p.isComplete() {
		p.complete()
		p.complete = nil
	}
	return out
}

// endpointsFor is the name of a cluster's endpoints, which a real proxy reads in the
// cluster itself.
func (p *proxy) endpointsFor(typeURL, cluster string) (string, bool) {
	if typeURL != xds.ClusterType {
		return "", false
	}
	if strings.HasPrefix(cluster, "outbound|") {
		return cluster, true
	}
	i := slices.IndexFunc(p.services, func(s int) bool { return clusterOf(s) == cluster })
	if i < 0 {
		return "", false
	}
	return endpointsOf(p.services[i]), true
}

func (p *proxy) isComplete() bool {
	for typeURL, n := range p.want {
		if len(p.have[typeURL]) < n {
			return false
		}
	}
	return true
}
