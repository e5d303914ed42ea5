package resource_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/xds"
	"outrider.dev/test/process"
)

// The real Envoy accepts every resource in the golden files.
func TestEnvoyAcceptsAll(t *testing.T) {
	binary := process.Envoy(t)
	for name, resources := range goldenCases(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			raw := static(t, dir, resources)
			file := filepath.Join(dir, "envoy.json")
			if err := os.WriteFile(file, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(binary, "--mode", "validate", "-c", file, "-l", "error").CombinedOutput()
			// The exit status is not used: with statistics of requests, Envoy 1.40 crashes at the end
			// of a validation, after it has printed this line. Envoy as a server does not.
			if !bytes.Contains(out, []byte("configuration '"+file+"' OK")) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// static returns a bootstrap that contains resources. It puts virtual hosts into a route configuration
// in a listener, and leaves out endpoints, which a bootstrap cannot contain.
func static(t *testing.T, dir string, resources []xds.Dependency) []byte {
	t.Helper()
	// Envoy requires these files to exist; they may be empty.
	for _, file := range []string{"workload.json", "roots.json"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(`{"resources": []}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := &bootstrap.Bootstrap{StaticResources: &bootstrap.Bootstrap_StaticResources{}}
	hosts := &route.RouteConfiguration{Name: "hosts"}
	var configs []*route.RouteConfiguration
	for _, n := range resources {
		m := message(t, n.Resource)
		switch m := m.(type) {
		case *listener.Listener:
			if m.ApiListener == nil { // for gRPC clients, not for Envoy
				b.StaticResources.Listeners = append(b.StaticResources.Listeners, m)
			}
		case *cluster.Cluster:
			if m.Name == envoy.PassthroughCluster {
				break // the bootstrap contains it already
			}
			b.StaticResources.Clusters = append(b.StaticResources.Clusters, m)
		case *route.VirtualHost:
			hosts.VirtualHosts = append(hosts.VirtualHosts, m)
		case *route.RouteConfiguration:
			if m.Vhds == nil {
				configs = append(configs, m)
			}
		}
	}
	if hosts.VirtualHosts != nil {
		configs = append(configs, hosts)
	}
	for i, c := range configs {
		c.ValidateClusters = wrapperspb.Bool(false)
		b.StaticResources.Listeners = append(b.StaticResources.Listeners, routeListener(t, c, uint32(20000+i)))
	}
	extra, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	out, err := envoy.Options{Node: envoy.Node{ID: "test"}, Relay: "ads.sock", Secrets: "sds.sock", Extra: extra}.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(out, []byte(certificates), []byte(dir))
}

// routeListener returns a listener with virtual hosts.
func routeListener(t *testing.T, hosts *route.RouteConfiguration, port uint32) *listener.Listener {
	t.Helper()
	packed, err := anypb.New(&hcm.HttpConnectionManager{StatPrefix: "x", RouteSpecifier: &hcm.HttpConnectionManager_RouteConfig{RouteConfig: hosts}})
	if err != nil {
		t.Fatal(err)
	}
	return &listener.Listener{
		Name: hosts.Name,
		Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &core.SocketAddress_PortValue{PortValue: port},
		}}},
		FilterChains: []*listener.FilterChain{{Filters: []*listener.Filter{{
			Name: "envoy.filters.network.http_connection_manager", ConfigType: &listener.Filter_TypedConfig{TypedConfig: packed},
		}}}},
	}
}

func message(t *testing.T, r *xds.Resource) proto.Message {
	t.Helper()
	m, err := r.Body.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m
}
