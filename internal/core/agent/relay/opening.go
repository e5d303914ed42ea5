package relay

import (
	"encoding/binary"
	"errors"
	"slices"

	"outrider.dev/internal/base/wire"
)

const (
	// window is the number of bytes that a client of HTTP/2 may send before the server has sent
	// anything (RFC 9113, section 6.9.2); maxFrame is the largest payload of a frame until then
	// (section 4.2).
	window, maxFrame = 1<<16 - 1, 1 << 14
	// maxOpening bounds the buffered bytes: a window, and the headers of its frames.
	maxOpening = window + 1<<10

	// Fields of envoy.service.discovery.v3.DeltaDiscoveryRequest, and of envoy.config.core.v3.Node.
	nodeField, extensionsField = 1, 9
)

// An opening rewrites Envoy's first bytes, up to the end of the node in its first request, to remove the list
// of Envoy's extensions from the node. The list has 60 kB; the control plane does not read it, and no setting
// of Envoy omits it. It is more than TCP sends at first, and more than the control plane accepts from a client
// without an identity, so over a long distance it would cost four round trips.
type opening struct {
	preface int    // bytes of the HTTP/2 preface that have not arrived yet
	held    []byte // complete DATA frames, and then the arrived part of the next frame
	next    int    // offset in held of the frame that is still arriving
	data    []byte // payloads of the complete frames
	stream  uint32 // ID of the stream of these frames
	spared  int    // bytes of DATA that were removed
	over    bool   // all later bytes pass unchanged
}

// take returns the bytes to forward now.
func (o *opening) take(p []byte) []byte {
	if o.over {
		return p
	}
	out, over := o.add(p)
	if o.over = over; over {
		o.held, o.data = nil, nil
	}
	return out
}

func (o *opening) add(p []byte) (out []byte, over bool) {
	n := min(o.preface, len(p))
	o.preface -= n
	out, o.held = slices.Clone(p[:n]), append(o.held, p[n:]...)
	for len(o.held) >= o.next+frameHead {
		f := frames{head: o.held[o.next:]}
		end, data := o.next+frameHead+f.size(), f.kind() == dataFrame
		switch {
		case end > maxOpening, data && f.head[4] != 0, len(o.data) > 0 && (!data || f.stream() != o.stream):
			return append(out, o.held...), true
		case end > len(o.held):
			return out, false
		case data:
			o.data, o.stream, o.next = append(o.data, o.held[o.next+frameHead:end]...), f.stream(), end
			if out, over = o.shorten(out); over {
				return out, over
			}
		default:
			out = append(out, o.held[:end]...)
			o.held = o.held[end:]
		}
	}
	return out, false
}

// shorten appends the buffered frames to out without the extensions, once the node is complete.
func (o *opening) shorten(out []byte) ([]byte, bool) {
	short := withoutExtensions(o.data)
	if short == nil {
		return out, false
	}
	for piece := range slices.Chunk(short, maxFrame) {
		out = appendFrame(out, dataFrame, o.stream, piece)
	}
	o.spared = len(o.data) - len(short)
	return append(out, o.held[o.next:]...), true
}

// credit returns WINDOW_UPDATE frames that add the removed bytes to Envoy's flow-control windows, of the stream
// and of the connection. The control plane does this only for the bytes that it has received.
func (o *opening) credit() []byte {
	spared := binary.BigEndian.AppendUint32(nil, uint32(o.spared))
	o.spared = 0
	return appendFrame(appendFrame(nil, windowFrame, 0, spared), windowFrame, o.stream, spared)
}

// appendFrame appends a frame that has no flags.
func appendFrame(out []byte, kind byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	out = append(out, byte(n>>16), byte(n>>8), byte(n), kind, 0)
	return append(binary.BigEndian.AppendUint32(out, stream), payload...)
}

var errNotANode = errors.New("a field of another kind")

// withoutExtensions takes gRPC messages, of which the last may be incomplete, and removes the extensions from
// the node of the first one. It returns nil while the rest of the node is missing. If there is no node, or one
// larger than a window, it returns m unchanged.
func withoutExtensions(m []byte) []byte {
	if len(m) <= messageHead {
		return nil
	}
	const tag = nodeField<<3 | byte(wire.BytesField)
	size, n := binary.Uvarint(m[messageHead+1:])
	begin, length := messageHead+1+n, uint64(binary.BigEndian.Uint32(m[1:]))
	switch {
	case m[0] != 0 || m[messageHead] != tag || n < 0 || size > window || begin+int(size) > min(window, messageHead+int(length)):
		return m
	case n == 0 || begin+int(size) > len(m):
		return nil
	}
	var node []byte
	if wire.Fields(m[begin:begin+int(size)], func(f wire.Field) error {
		if f.Kind != wire.BytesField {
			return errNotANode
		}
		if f.Number != extensionsField {
			node = wire.AppendField(node, f.Number, f.Bytes)
		}
		return nil
	}) != nil {
		return m
	}
	rest := m[begin+int(size):]
	out := wire.AppendField(make([]byte, messageHead), nodeField, node)
	binary.BigEndian.PutUint32(out[1:], uint32(int(length)-len(m)+len(out)+len(rest)))
	return append(out, rest...)
}
