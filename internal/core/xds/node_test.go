package xds

import (
	"net/netip"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestParseNodeID(t *testing.T) {
	address := netip.MustParseAddr
	tests := map[string]struct {
		id   string
		want NodeID
		err  string
	}{
		"a sidecar":                  {"sidecar~10.0.0.7~app-1.shop~shop.svc.cluster.local", NodeID{address("10.0.0.7"), "app-1", "shop"}, ""},
		"a pod's name with dots":     {"sidecar~fd00::7~app.v1.shop~d", NodeID{address("fd00::7"), "app.v1", "shop"}, ""},
		"no domain":                  {"router~10.0.0.7~gw.shop~", NodeID{address("10.0.0.7"), "gw", "shop"}, ""},
		"another form is ignored":    {"grpc-client.1", NodeID{}, ""},
		"nothing":                    {"", NodeID{}, ""},
		"two parts":                  {"host~vm-1", NodeID{}, `node.id: "host~vm-1" has 2 parts; must be kind~address~name.namespace~domain`},
		"no address":                 {"sidecar~here~a.b~d", NodeID{}, `node.id: "sidecar~here~a.b~d": "here" is not an IP address; must be kind~address~name.namespace~domain`},
		"no namespace":               {"sidecar~10.0.0.7~a.~d", NodeID{}, `node.id: "sidecar~10.0.0.7~a.~d": "a." is not name.namespace; must be kind~address~name.namespace~domain`},
		"a namespace without a name": {"sidecar~10.0.0.7~.b~d", NodeID{}, `node.id: "sidecar~10.0.0.7~.b~d": ".b" is not name.namespace; must be kind~address~name.namespace~domain`},
		"no kind":                    {"~10.0.0.7~a.b~d", NodeID{}, `node.id: "~10.0.0.7~a.b~d" has no kind; must be kind~address~name.namespace~domain`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseNodeID(tt.id)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tt.err {
				t.Errorf("error %q; want %q", text, tt.err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("ParseNodeID (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProxyIsDescribedByItsNode(t *testing.T) {
	meta, err := structpb.NewStruct(map[string]any{
		"INSTANCE_IPS": "10.0.0.7, fd00::7,nonsense,::ffff:10.0.0.8", "LABELS": map[string]any{"app": "x"}, "ZONE": "eu-1", "PREWARM": true, "WORKLOAD_NAME": "app", "OUTRIDER_VERSION": "v1.2.3",
	})
	if err != nil {
		t.Fatal(err)
	}
	p, w, err := describe(Proxy{Namespace: "shop", ServiceAccount: "sa"}, &core.Node{Id: "sidecar~10.0.0.7~app-1.shop~d", Metadata: meta, UserAgentName: "envoy",
		UserAgentVersionType: &core.Node_UserAgentBuildVersion{UserAgentBuildVersion: &core.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40},
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"ssl.version": structpb.NewStringValue("BoringSSL")}}}}}, "delta")
	if err != nil {
		t.Fatal(err)
	}
	want := &Proxy{
		ID: "sidecar~10.0.0.7~app-1.shop~d", Namespace: "shop", ServiceAccount: "sa", Envoy: "1.40.0", BoringSSL: true,
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7"), netip.MustParseAddr("10.0.0.8")},
		Metadata: map[string]string{
			"INSTANCE_IPS": "10.0.0.7, fd00::7,nonsense,::ffff:10.0.0.8", "WORKLOAD_NAME": "app", "OUTRIDER_VERSION": "v1.2.3",
		},
	}
	if diff := cmp.Diff(want, p, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("proxy (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Workload{"shop", "sa", "app"}, w); diff != "" {
		t.Errorf("workload (-want +got):\n%s", diff)
	}
}

// Envoy's list of extensions takes 60 kB. The list does not count towards the limit of a node's size, because it
// would leave no room for a pod's labels.
func TestExtensionsOfANodeDoNotCount(t *testing.T) {
	if err := checkNode(&core.Node{Id: "x", Extensions: []*core.Extension{{Name: strings.Repeat("x", maxNode)}}}); err != nil {
		t.Error(err)
	}
}

// A gRPC client gets everything by name, even with the delta protocol.
func TestGRPCClientIsFoundByItsAgent(t *testing.T) {
	for agent, want := range map[string]bool{"gRPC Go": true, "gRPC C-core Linux": true, "gRPC Java": true, "envoy": false, "": false} {
		p, _, err := describe(Proxy{}, &core.Node{UserAgentName: agent}, "delta")
		if err != nil || p.GRPC != want {
			t.Errorf("%q: %+v, %v", agent, p, err)
		}
	}
}

func FuzzParseNodeID(f *testing.F) {
	for _, seed := range []string{"", "~", "~~~", "sidecar~10.0.0.7~app-1.shop~d", "sidecar~fe80::1%eth0~a.b.c~", "host~vm-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		got, err := ParseNodeID(id)
		if err == nil && strings.Contains(id, "~") && (got.Name == "" || got.Namespace == "" || !got.Address.IsValid()) {
			t.Errorf("%q is %+v", id, got)
		}
	})
}
