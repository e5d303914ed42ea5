package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/xds"
)

// seal serialises a resource. The same content is the same bytes and the same version in
// every replica. It returns nil for what cannot be serialised: a text in it is no UTF-8,
// which Kubernetes does not let pass.
func seal(name string, m proto.Message) *xds.Resource {
	body := typed(m)
	if body == nil {
		return nil
	}
	sum := sha256.Sum256(body.Value)
	return &xds.Resource{Name: name, Version: hex.EncodeToString(sum[:8]), Body: body}
}

// typed is a message with its type, or nil.
func typed(m proto.Message) *anypb.Any {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil
	}
	return &anypb.Any{TypeUrl: xds.TypePrefix + string(m.ProtoReflect().Descriptor().FullName()), Value: raw}
}

func number(n uint32) *wrapperspb.UInt32Value      { return wrapperspb.UInt32(n) }
func yes() *wrapperspb.BoolValue                   { return wrapperspb.Bool(true) }
func no() *wrapperspb.BoolValue                    { return wrapperspb.Bool(false) }
func lasting(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
