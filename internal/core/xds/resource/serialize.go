package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/xds"
)

// serialize returns a resource whose version is a digest of its content, so all replicas use the same.
// It returns nil if a string is not UTF-8, which Kubernetes does not accept.
func serialize(name string, m proto.Message) *xds.Resource {
	body := typed(m)
	if body == nil {
		return nil
	}
	sum := sha256.Sum256(body.Value)
	return &xds.Resource{Name: name, Version: hex.EncodeToString(sum[:8]), Body: body}
}

// typed returns a message with its type, or nil if a string is not UTF-8.
func typed(m proto.Message) *anypb.Any {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil
	}
	return &anypb.Any{TypeUrl: xds.TypePrefix + string(m.ProtoReflect().Descriptor().FullName()), Value: raw}
}

func uint32Value(n uint32) *wrapperspb.UInt32Value  { return wrapperspb.UInt32(n) }
func on() *wrapperspb.BoolValue                     { return wrapperspb.Bool(true) }
func off() *wrapperspb.BoolValue                    { return wrapperspb.Bool(false) }
func duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
