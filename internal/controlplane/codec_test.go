package controlplane

import (
	"bytes"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// A message takes as much memory as it has bytes.
func TestMessagesHaveBuffersOfTheirSize(t *testing.T) {
	for _, size := range []int{0, 1, 300, 40 << 10, 2 << 20} {
		message := &discovery.DeltaDiscoveryResponse{Nonce: strings.Repeat("x", size)}
		want, err := proto.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		got, err := exactCodec().Marshal(message)
		if err != nil || len(got) != 1 || !bytes.Equal(got.Materialize(), want) {
			t.Fatalf("%d bytes: %d buffers, %v; want one with the message", size, len(got), err)
		}
		if b := got[0].(mem.SliceBuffer); cap(b) != len(b) {
			t.Errorf("%d bytes take %d", len(b), cap(b))
		}
		var back discovery.DeltaDiscoveryResponse
		if err := exactCodec().Unmarshal(got, &back); err != nil || !proto.Equal(message, &back) {
			t.Errorf("%d bytes: %v, or another message", size, err)
		}
	}
	if _, err := exactCodec().Marshal("text"); err == nil {
		t.Error("no error for what is no message")
	}
}
