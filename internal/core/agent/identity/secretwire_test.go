package identity

import (
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Our parser reads the same fields as protobuf's own library.
func FuzzDiscoveryRequest(f *testing.F) {
	f.Add(marshal(f, &discovery.DiscoveryRequest{VersionInfo: "1", Node: &core.Node{Id: "n"}, ResourceNames: []string{"workload", "roots"},
		TypeUrl: secretType, ResponseNonce: "7", ErrorDetail: &rpcstatus.Status{Code: 13, Message: "no\nkey"}}))
	f.Add([]byte{0x1a, 0x02, 0xff, 0xfe})
	f.Add([]byte{0x1a, 0xff})
	f.Add([]byte{0x32, 0x03, 0x12, 0x01, 'x'})
	f.Add([]byte{0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := parseDiscoveryRequest(raw)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("an error of two lines: %q", err)
			}
			return
		}
		want := &discovery.DiscoveryRequest{}
		if proto.Unmarshal(raw, want) != nil {
			return // fields that we do not read
		}
		if !slices.Equal(got.names, want.ResourceNames) || got.typeURL != want.TypeUrl || got.nonce != want.ResponseNonce || got.nack != (want.ErrorDetail != nil) {
			t.Errorf("%x: %+v, want %v", raw, got, want)
		}
		if strings.Contains(got.reason, "\n") || got.reason == "" && strings.Trim(want.GetErrorDetail().GetMessage(), " ") != "" {
			t.Errorf("%x: the reason is %q, want %q", raw, got.reason, want.ErrorDetail.Message)
		}
	})
}
