package xds

import (
	"bytes"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// An encoded message takes no more memory than its size.
func TestMessagesHaveBuffersOfTheirSize(t *testing.T) {
	for _, size := range []int{0, 1, 300, 40 << 10, 2 << 20} {
		message := &discovery.DeltaDiscoveryResponse{Nonce: strings.Repeat("x", size)}
		want, err := proto.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Codec().Marshal(message)
		if err != nil || len(got) != 1 || !bytes.Equal(got.Materialize(), want) {
			t.Fatalf("%d bytes: %d buffers, %v; want one with the message", size, len(got), err)
		}
		if b := got[0].(mem.SliceBuffer); cap(b) != len(b) {
			t.Errorf("%d bytes take %d", len(b), cap(b))
		}
		var back discovery.DeltaDiscoveryResponse
		if err := Codec().Unmarshal(got, &back); err != nil || !proto.Equal(message, &back) {
			t.Errorf("%d bytes: %v, or another message", size, err)
		}
	}
	if _, err := Codec().Marshal("text"); err == nil {
		t.Error("no error for what is no message")
	}
}

// A request that cannot be decoded ends its stream with an error that says why.
func TestRequestThatCannotBeDecoded(t *testing.T) {
	s := New(byClaim(newTestSource(mustSnapshot(t, "1", "cds base@1 *"))))
	conn, err := grpc.NewClient(listen(t, s), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(garbage{Codec()})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "cannot be decoded") {
		t.Errorf("%v, want InvalidArgument with the reason", err)
	}
}

// garbage encodes each message as bytes that cannot be decoded.
type garbage struct{ encoding.CodecV2 }

func (garbage) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer{0xff, 0xff}}, nil
}
