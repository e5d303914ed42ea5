package identity

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	grpcxds "google.golang.org/grpc/xds"

	"outrider.dev/internal/base/contract"
)

// A discoverer is a control plane that records the first subscription and its sender.
type discoverer struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	first chan [3]string // the identity, the node's ID, the name
}

func (d *discoverer) StreamAggregatedResources(s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	r, err := s.Recv()
	if err != nil {
		return err
	}
	p, _ := peer.FromContext(s.Context())
	state := p.AuthInfo.(credentials.TLSInfo).State
	select {
	case d.first <- [3]string{state.PeerCertificates[0].URIs[0].String(), r.Node.Id, r.ResourceNames[0]}:
	default:
	}
	<-s.Context().Done()
	return nil
}

// A gRPC client with the bootstrap file reaches the control plane by mutual TLS, with the pod's
// identity.
func TestBootstrapOfGRPCClients(t *testing.T) {
	p := newPlane(t)
	serving := must(p.authority.NewServing(must(parse(planeID)), []string{"localhost", contract.ControlPlaneName}, 0))
	d := &discoverer{first: make(chan [3]string, 1)}
	control := grpc.NewServer(grpc.Creds(credentials.NewTLS(serving.TLS())))
	discovery.RegisterAggregatedDiscoveryServiceServer(control, d)
	listener := must(net.Listen("tcp", "localhost:0"))
	go control.Serve(listener)
	t.Cleanup(control.Stop)
	_, port, _ := net.SplitHostPort(listener.Addr().String())

	o := p.options(t)
	o.OutputDir = filepath.Join(t.TempDir(), "out")
	o.GRPC = GRPCNode{ID: "grpc~10.0.0.1~app-1.shop~x", Server: "localhost:" + port}
	run(t, o).phase(t, Have)
	resolver := must(grpcxds.NewXDSResolverWithConfigForTesting([]byte(text(t, o.OutputDir, BootstrapFile))))
	client := must(grpc.NewClient("xds:///reviews:80", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials())))
	t.Cleanup(func() { client.Close() })
	client.Connect()
	if got, want := <-d.first, [3]string{"spiffe://cluster.local/ns/shop/sa/app", o.GRPC.ID, "reviews:80"}; got != want {
		t.Errorf("subscribed: %q; want %q", got, want)
	}
	for _, name := range []string{BootstrapFile, KeyFile, ChainFile, RootFile} {
		if info := must(os.Stat(filepath.Join(o.OutputDir, name))); info.Mode() != 0o600 {
			t.Errorf("%s has mode %s; want no other user to read it", name, info.Mode())
		}
	}
}
