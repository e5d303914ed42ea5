package xds

import (
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Codec returns the codec for the gRPC server on which a [Server] is registered: see [grpc.ForceServerCodecV2].
//
// It encodes a message into a buffer of the message's size. gRPC's own codec uses a pool of buffers of
// 32 KiB or 1 MiB: after a start most first configurations occupy 1 MiB until they are written, and the
// pool keeps that memory for two garbage collections.
//
// It also leaves a [frame] undecoded.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(encodingproto.Name)} }

type codec struct{ encoding.CodecV2 }

// A frame is an undecoded request. Decoding needs a deep stack, which a goroutine then keeps. Because
// the goroutine that waits for requests does not decode them, its stack is half as large.
type frame []byte

// Unmarshal and Marshal implement [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		*f = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(make([]byte, 0, proto.Size(m)), m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}
