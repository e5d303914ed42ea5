// Package foreign tests the control plane with clients that are not Envoy.
package foreign

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	grpcxds "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/xds"
)

const target = "greeter.shop"

// A backend is a view with one service that gRPC can dial, at one address.
type backend struct {
	version string
	known   map[[2]string]*xds.Resource
}

func newBackend(t *testing.T, version, address string) *backend {
	b := &backend{version: version, known: map[[2]string]*xds.Resource{}}
	add := func(typeURL, name string, m proto.Message) {
		b.known[[2]string{typeURL, name}] = &xds.Resource{Name: name, Version: version, Body: pack(t, m)}
	}
	ads := &core.ConfigSource{ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}, ResourceApiVersion: core.ApiVersion_V3}
	add(xds.ListenerType, target, &listener.Listener{Name: target, ApiListener: &listener.ApiListener{ApiListener: pack(t, &hcm.HttpConnectionManager{
		RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: "routes", ConfigSource: ads}},
		HttpFilters:    []*hcm.HttpFilter{{Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(t, &router.Router{})}}},
	})}})
	add(xds.RouteType, "routes", &route.RouteConfiguration{Name: "routes", VirtualHosts: []*route.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		Routes: []*route.Route{{
			Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: ""}},
			Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: "greeter"}}},
		}},
	}}})
	add(xds.ClusterType, "greeter", &cluster.Cluster{
		Name: "greeter", ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{EdsConfig: ads, ServiceName: "endpoints"},
	})
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	add(xds.EndpointType, "endpoints", &endpoint.ClusterLoadAssignment{ClusterName: "endpoints", Endpoints: []*endpoint.LocalityLbEndpoints{{
		Locality: &core.Locality{Zone: "a"}, LoadBalancingWeight: wrapperspb.UInt32(1),
		LbEndpoints: []*endpoint.LbEndpoint{{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
				Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(port)},
			}}},
		}}}},
	}}})
	return b
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	body, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func (b *backend) Version() string { return b.version }

func (b *backend) All(*xds.Proxy, string, []string) []xds.Answer { return nil }

func (b *backend) Named(_ *xds.Proxy, typeURL, name string) xds.Answer {
	return xds.Answer{Resource: b.known[[2]string{typeURL, name}]}
}

// A stage is a source that a test sets.
type stage struct {
	mu    sync.Mutex
	view  xds.View
	newer chan struct{}
}

func (s *stage) Current() (xds.View, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view, s.newer
}

func (s *stage) set(v xds.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view = v
	if s.newer != nil {
		close(s.newer)
	}
	s.newer = make(chan struct{})
}

// serve runs a gRPC server on loopback until the test ends.
func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("serving on %s: %v", l.Addr(), err)
		}
	})
	return l.Addr().String()
}

func TestGRPCFindsAServiceAndFollowsItsMove(t *testing.T) {
	greeter := func(s *grpc.Server) { healthpb.RegisterHealthServer(s, health.NewServer()) }
	first, second := serve(t, greeter), serve(t, greeter)
	source := &stage{}
	source.set(newBackend(t, "1", first))
	server := xds.New(xds.Options{Source: source, Authenticate: xds.ByClaim})
	control := serve(t, func(s *grpc.Server) { discovery.RegisterAggregatedDiscoveryServiceServer(s, server) })

	bootstrap, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri": control, "channel_creds": []any{map[string]string{"type": "insecure"}}, "server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{"id": "sidecar~127.0.0.1~client.shop~shop.svc.cluster.local", "metadata": map[string]string{"NAMESPACE": "shop"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+target, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var p peer.Peer
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p), grpc.WaitForReady(true))
		return fmt.Sprint(p.Addr), err
	}
	if got, err := ask(); err != nil || got != first {
		t.Fatalf("the first call went to %s, %v; want %s\n%+v", got, err, first, server.Proxies())
	}
	source.set(newBackend(t, "2", second))
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got, err := ask()
		if err == nil && got == second {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("calls still go to %s, %v; want %s", got, err, second)
		}
	}
	proxies := server.Proxies()
	if len(proxies) != 1 || proxies[0].OnDemand || proxies[0].Namespace != "shop" {
		t.Fatalf("proxies: %+v", proxies)
	}
	for _, ty := range proxies[0].Types {
		if ty.Rejected != nil || ty.Wildcard {
			t.Errorf("%s: %+v", ty.Type, ty)
		}
	}
}
