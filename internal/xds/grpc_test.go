package xds

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	grpcxds "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const grpcTarget = "greeter.shop"

// grpcSnapshot has one service that gRPC can dial, at one address.
func grpcSnapshot(t *testing.T, version, address string) *textSnapshot {
	t.Helper()
	v := mustSnapshot(t, version, "")
	add := func(typeURL, name string, m proto.Message) {
		k := key{typeURL, name}
		v.entries[k] = &entry{key: k, resource: &Resource{Name: name, Version: version, Body: pack(t, m)}}
	}
	ads := &core.ConfigSource{ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}, ResourceApiVersion: core.ApiVersion_V3}
	add(ListenerType, grpcTarget, &listener.Listener{Name: grpcTarget, ApiListener: &listener.ApiListener{ApiListener: pack(t, &hcm.HttpConnectionManager{
		RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: "routes", ConfigSource: ads}},
		HttpFilters:    []*hcm.HttpFilter{{Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(t, &router.Router{})}}},
	})}})
	add(RouteType, "routes", &route.RouteConfiguration{Name: "routes", VirtualHosts: []*route.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		Routes: []*route.Route{{
			Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: ""}},
			Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: "greeter"}}},
		}},
	}}})
	add(ClusterType, "greeter", &cluster.Cluster{
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
	add(EndpointType, "endpoints", &endpoint.ClusterLoadAssignment{ClusterName: "endpoints", Endpoints: []*endpoint.LocalityLbEndpoints{{
		Locality: &core.Locality{Zone: "a"}, LoadBalancingWeight: wrapperspb.UInt32(1),
		LbEndpoints: []*endpoint.LbEndpoint{{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
				Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(port)},
			}}},
		}}}},
	}}})
	return v
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	body, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// A gRPC client without a proxy resolves its target by xDS, and follows a change.
func TestGRPCClient(t *testing.T) {
	greeter := func(s *grpc.Server) { healthpb.RegisterHealthServer(s, health.NewServer()) }
	first, second := listenGRPC(t, greeter), listenGRPC(t, greeter)
	source := newTestSource(grpcSnapshot(t, "1", first))
	server := New(byClaim(source))
	control := listen(t, server)

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
	conn, err := grpc.NewClient("xds:///"+grpcTarget, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var p peer.Peer
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p), grpc.WaitForReady(true))
		return fmt.Sprint(p.Addr), err
	}
	if got, err := call(); err != nil || got != first {
		t.Fatalf("the first call went to %s, %v; want %s\n%+v", got, err, first, server.Proxies())
	}
	source.set(grpcSnapshot(t, "2", second))
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got, err := call()
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
