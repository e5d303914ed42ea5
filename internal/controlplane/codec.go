package controlplane

import (
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// exact encodes messages into buffers of their size. gRPC's own codec takes them from a pool whose
// buffers have 32 KiB or 1 MiB: after a start most first configurations hold 1 MiB until they are
// written, and the pool keeps that for two collections.
type exact struct{ encoding.CodecV2 }

func exactCodec() encoding.CodecV2 { return exact{encoding.GetCodecV2(encodingproto.Name)} }

// Marshal is part of [encoding.CodecV2].
func (c exact) Marshal(v any) (mem.BufferSlice, error) {
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
