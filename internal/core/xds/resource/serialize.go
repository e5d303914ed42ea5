package resource

import (
	"crypto/sha256"
	"encoding/hex"

	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/message"
)

// serialize returns a resource whose version is a digest of its content, so all replicas use the same.
// It returns nil if a string is not UTF-8, which Kubernetes does not accept.
func serialize(name string, m proto.Message) *xds.Resource {
	body := message.Typed(m)
	if body == nil {
		return nil
	}
	sum := sha256.Sum256(body.Value)
	return &xds.Resource{Name: name, Version: hex.EncodeToString(sum[:8]), Body: body}
}
