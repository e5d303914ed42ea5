package controlplane

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

func addresses(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func namesMesh() *mesh.Mesh {
	service := func(namespace, name string, change func(*mesh.ServiceSpec)) *mesh.ServiceSpec {
		s := &mesh.ServiceSpec{Namespace: namespace, Name: name, Ports: []mesh.PortSpec{{Port: mesh.Port{Name: "http", Number: 80}}, {Port: mesh.Port{Name: "admin", Number: 81}}}}
		change(s)
		return s
	}
	external := func(namespace, name, target string) *mesh.ServiceSpec {
		return &mesh.ServiceSpec{Namespace: namespace, Name: name, External: target}
	}
	return build.Mesh(mesh.Config{},
		service("shop", "reviews", func(s *mesh.ServiceSpec) { s.Addresses = addresses("10.96.0.1", "fd96::1") }),
		service("shop", "secret", func(s *mesh.ServiceSpec) { s.Addresses, s.ExportTo = addresses("10.96.0.2"), []string{"."} }),
		service("shop", "db", func(s *mesh.ServiceSpec) { s.Headless = true }),
		&mesh.SliceSpec{Namespace: "shop", Name: "db-1", Service: "db",
			Ports: []mesh.SlicePort{{Name: "http", Number: 8080}, {Name: "admin", Number: 8081}},
			Endpoints: []mesh.SliceEndpoint{
				{Addresses: addresses("10.0.0.8"), Ready: true, Hostname: "db-0"},
				{Addresses: addresses("10.0.0.7"), Ready: true, Hostname: "db-1"},
				{Addresses: addresses("10.0.0.9"), Ready: false, Hostname: "db-2"},
			}},
		external("shop", "out", "Db.Example.com."),
		external("shop", "near", "reviews.shop.svc.cluster.local"),
		external("shop", "hidden", "out.shop.svc.cluster.local"),
		external("shop", "round", "about.shop.svc.cluster.local"),
		external("shop", "about", "round.shop.svc.cluster.local"),
	)
}

func TestLookupName(t *testing.T) {
	known := func(ips []netip.Addr, aliases ...string) wire.Answer {
		return wire.Answer{Known: true, TTL: nameTTL, Addresses: ips, Aliases: aliases}
	}
	unknown := wire.Answer{TTL: unknownNameTTL}
	reviews := "reviews.shop.svc.cluster.local"
	tests := map[string]struct {
		name, from string
		want       wire.Answer
	}{
		"a full name":     {reviews, "web", known(addresses("10.96.0.1", "fd96::1"), reviews)},
		"case is ignored": {"Reviews.Shop", "web", known(addresses("10.96.0.1", "fd96::1"), reviews)},
		"a short name is one of the caller's namespace":      {"reviews", "shop", known(addresses("10.96.0.1", "fd96::1"), reviews)},
		"a short name is not one of another namespace":       {"reviews", "web", unknown},
		"a private service in its own namespace":             {"secret.shop", "shop", known(addresses("10.96.0.2"), "secret.shop.svc.cluster.local")},
		"a private service in another namespace":             {"secret.shop.svc.cluster.local", "web", unknown},
		"a headless service is its endpoints that are ready": {"db.shop", "web", known(addresses("10.0.0.7", "10.0.0.8"), "db.shop.svc.cluster.local")},
		"a pod of a headless service by its own name":        {"db-0.db.shop.svc.cluster.local", "web", known(addresses("10.0.0.8"), "db-0.db.shop.svc.cluster.local")},
		"a pod that is not ready has a name, no address":     {"db-2.db.shop.svc.cluster.local", "web", known(nil, "db-2.db.shop.svc.cluster.local")},
		"an external name leads outside": {"out.shop", "web", wire.Answer{Known: true, TTL: nameTTL,
			Aliases: []string{"out.shop.svc.cluster.local"}, Outside: "db.example.com"}},
		"an external name within the mesh is followed": {"near.shop", "web", known(addresses("10.96.0.1", "fd96::1"), "near.shop.svc.cluster.local", reviews)},
		"an external name by way of another": {"hidden.shop", "web", wire.Answer{Known: true, TTL: nameTTL,
			Aliases: []string{"hidden.shop.svc.cluster.local", "out.shop.svc.cluster.local"}, Outside: "db.example.com"}},
		"a loop of external names": {"round.shop", "web", known(nil, "round.shop.svc.cluster.local", "about.shop.svc.cluster.local")},
		"anything else":            {"example.com", "shop", unknown},
	}
	m := namesMesh()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := lookupName(m, tt.name, tt.from)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("lookupName (-want +got):\n%s", diff)
			}
		})
	}
}

// callNames calls the service over gRPC with an encoded request.
func callNames(t *testing.T, s *nameService, message []byte) ([]byte, error) {
	t.Helper()
	server := grpc.NewServer()
	s.register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	defer server.Stop()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in, out := &emptypb.Empty{}, &emptypb.Empty{}
	in.ProtoReflect().SetUnknown(message)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = conn.Invoke(ctx, wire.NamesPath, in, out)
	return out.ProtoReflect().GetUnknown(), err
}

func TestNamesAreResolvedForTheCallersNamespace(t *testing.T) {
	for namespace, want := range map[string]bool{"shop": true, "web": false} {
		s := &nameService{namesMesh, func(context.Context) (ca.Identity, error) {
			return ca.Identity{TrustDomain: "cluster.local", Namespace: namespace, ServiceAccount: "a"}, nil
		}}
		raw, err := callNames(t, s, wire.NamesRequest{Names: []string{"secret.shop.svc.cluster.local", "reviews.shop"}}.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.ParseNamesResponse(raw)
		if err != nil || len(got.Answers) != 2 || got.Answers[0].Known != want || !got.Answers[1].Known {
			t.Errorf("to %s: %+v, %v; want the secret to be known: %v", namespace, got, err, want)
		}
	}
}

func TestInvalidNameRequests(t *testing.T) {
	anonymous := &nameService{namesMesh, func(context.Context) (ca.Identity, error) {
		return ca.Identity{}, status.Error(codes.Unauthenticated, "no certificate")
	}}
	if _, err := callNames(t, anonymous, wire.NamesRequest{Names: []string{"reviews.shop"}}.Marshal()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a caller without a certificate: %v, want Unauthenticated", err)
	}
	caller := &nameService{namesMesh, func(context.Context) (ca.Identity, error) { return ca.Identity{}, nil }}
	if _, err := callNames(t, caller, []byte{10, 0}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an empty name: %v, want InvalidArgument", err)
	}
}
