package resource_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcp "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

func awayOf(t *testing.T, s *resource.Source) wire.Away {
	t.Helper()
	v, _ := s.Current()
	away, err := wire.ParseAway(v.Away())
	if err != nil {
		t.Fatal(err)
	}
	return away
}

// An agent makes a stand-in cluster from a template, to which it appends a name and a load assignment. The result
// equals the cluster that the control plane sends for the same address.
func TestTemplates(t *testing.T) {
	h := newTestMesh(parts()...)
	source := resource.New(h)
	away := awayOf(t, source)
	v, _ := source.Current()
	for name, template := range map[string][]byte{"http|10.9.9.9:80": away.HTTP, "tcp|10.9.9.9:80": away.TCP} {
		want, got := &cluster.Cluster{}, &cluster.Cluster{}
		if err := v.Named(client(withAgent), "type.googleapis.com/envoy.config.cluster.v3.Cluster", name).Resource.Body.UnmarshalTo(want); err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(template, got); err != nil {
			t.Fatal(err)
		}
		got.Name, got.LoadAssignment = want.Name, want.LoadAssignment
		if !proto.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if away.Grace != contract.DefaultFirstUse {
		t.Errorf("a grace of %s", away.Grace)
	}
	// The message is not made again while the networks stay the same.
	h.builder.Set(service("same", "web", "10.96.0.99", port(80, mesh.TCP)))
	same, _ := source.Current()
	if a, b := v.Away(), same.Away(); &a[0] != &b[0] {
		t.Error("made twice")
	}
	h.builder.Set(service("another", "web", "10.99.0.1", port(80, mesh.TCP)))
	if got := awayOf(t, source).Services; len(got) != len(away.Services)+1 {
		t.Errorf("networks %v after %v", got, away.Services)
	}
}

// Connections to addresses of services are retried, in separate filter chains. Existing chains stay the
// same when a range is added, and no prefix is in two of them.
func TestRangesOfServices(t *testing.T) {
	at := func(vip string) *mesh.ServiceSpec { return service("s"+vip, "web", vip, port(80, mesh.TCP)) }
	chains := func(s *resource.Source) map[string]*listener.FilterChain {
		t.Helper()
		v, _ := s.Current()
		out, seen := map[string]*listener.FilterChain{}, map[string]bool{}
		for _, c := range message(t, v.Named(client(withAgent), xds.ListenerType, "virtualOutbound").Resource).(*listener.Listener).FilterChains {
			if !strings.HasPrefix(c.Name, "tcp") {
				continue
			}
			out[c.Name] = c
			for _, r := range c.FilterChainMatch.PrefixRanges {
				if seen[r.String()] {
					t.Errorf("%s is in two chains", r)
				}
				seen[r.String()] = true
			}
			if len(c.FilterChainMatch.PrefixRanges) == 0 {
				t.Errorf("chain %q is for all addresses", c.Name)
			}
		}
		return out
	}
	for _, tt := range []struct {
		networks, vips, want string
	}{
		{"10.0.0.0/8 fd00::/8", "10.96.0.1", "tcp, tcp 10.96.0.0/16"},
		{"10.0.0.0/8 fd00::/8", "10.96.0.1 10.43.0.9 fd96::1", "tcp, tcp 10.43.0.0/16, tcp 10.96.0.0/16, tcp fd96::/112"},
		{"10.0.0.0/8 fd00::/8", "10.96.0.1 10.111.7.1 10.98.0.1", "tcp, tcp 10.96.0.0/12, tcp 10.96.0.0/16"},
		{"10.96.0.0/16", "10.96.0.1", "tcp 10.96.0.0/16"},
		{"10.96.0.0/20 10.244.0.0/16", "10.96.0.1", "tcp, tcp 10.96.0.0/20"},
		{"10.244.0.0/16", "10.96.0.1", "tcp"},
	} {
		var config mesh.Config
		for n := range strings.FieldsSeq(tt.networks) {
			config.Networks = append(config.Networks, netip.MustParsePrefix(n))
		}
		h := &testMesh{build.New(config), make(chan struct{})}
		source, before := resource.New(h), map[string]*listener.FilterChain{}
		for vip := range strings.FieldsSeq(tt.vips) {
			h.builder.Set(at(vip))
			now := chains(source)
			for name, c := range before { // any order: each is compared by itself
				if name != "tcp" && !proto.Equal(c, now[name]) {
					t.Errorf("%s of %s: %s changed the chain %q", tt.vips, tt.networks, vip, name)
				}
			}
			before = now
		}
		if got := strings.Join(slices.Sorted(maps.Keys(before)), ", "); got != tt.want {
			t.Errorf("%s of %s: %s; want %s", tt.vips, tt.networks, got, tt.want)
		}
		for name, c := range before { // any order: each is checked by itself
			var p tcp.TcpProxy
			if err := c.Filters[1].GetTypedConfig().UnmarshalTo(&p); err != nil || (p.MaxConnectAttempts.GetValue() > 1) != (name != "tcp") {
				t.Errorf("chain %q: %d tries, %v", name, p.MaxConnectAttempts.GetValue(), err)
			}
		}
	}
}
