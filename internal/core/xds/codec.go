package xds

import (
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Codec is that of a gRPC server on which a [Server] is registered: see [grpc.ForceServerCodecV2].
//
// It encodes messages into buffers of their size. gRPC's own codec takes them from a pool whose
// buffers have 32 KiB or 1 MiB: after a start most first configurations hold 1 MiB until they are
// written, and the pool keeps that for two collections.
//
// And it leaves a [frame] as it is.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(encodingproto.Name)} }

type codec struct{ encoding.CodecV2 }

// A frame is a request that is not decoded. Decoding needs a deep stack, which a goroutine keeps:
// the one that waits for requests has half as much without it.
type frame []byte

// Unmarshal is part of [encoding.CodecV2], as is Marshal.
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
