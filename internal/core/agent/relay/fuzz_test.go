package relay

import (
	"bytes"
	"slices"
	"testing"

	"outrider.dev/internal/base/wire"
)

// frame returns an HTTP/2 frame.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	out := appendFrame(nil, kind, stream, payload)
	out[4] = flags
	return out
}

// decoded returns the messages in raw, which it reads in pieces of the given size.
func decoded(raw []byte, limit, size int) (messages []string, ended []uint32, err error) {
	f := frames{
		limit:   limit,
		message: func(_ uint32, m []byte) { messages = append(messages, string(m)) },
		ended:   func(stream uint32) { ended = append(ended, stream) },
	}
	for piece := range slices.Chunk(raw, size) {
		f.read(piece)
	}
	return messages, ended, f.err
}

// A message that arrives in pieces takes no more memory than its bytes.
func TestMessageBuffer(t *testing.T) {
	const size = 1 << 20
	f := frames{limit: size, message: func(_ uint32, m []byte) {
		if len(m) != size || cap(m) > size+size/8 {
			t.Errorf("%d bytes, with room for %d", len(m), cap(m))
		}
	}}
	for piece := range slices.Chunk(frame(dataFrame, 0, 1, wire.Frame(make([]byte, size))), copyBuffer) {
		f.read(piece)
	}
}

// The result does not depend on how the bytes are divided into pieces.
func FuzzFrames(f *testing.F) {
	two := append(wire.Frame([]byte("one")), wire.Frame([]byte("two"))...)
	f.Add(slices.Concat(frame(headersFrame, 4, 1, []byte{0x82}), frame(dataFrame, 0, 1, two[:6]), frame(dataFrame, padded, 1, slices.Concat([]byte{2}, two[6:], []byte{0, 0})), frame(headersFrame, endStream, 1, nil)), uint8(1))
	f.Add(frame(dataFrame, padded, 3, []byte{9, 1}), uint8(2))
	f.Add(frame(resetFrame, 0, 5, make([]byte, 4)), uint8(3))
	f.Fuzz(func(t *testing.T, raw []byte, size uint8) {
		const limit = 1 << 10
		all, endedAll, errAll := decoded(raw, limit, max(1, len(raw)))
		pieces, endedPieces, errPieces := decoded(raw, limit, max(1, int(size)))
		if errAll == nil && !(slices.Equal(all, pieces) && slices.Equal(endedAll, endedPieces)) || (errAll == nil) != (errPieces == nil) {
			t.Errorf("%q %v %v at once, %q %v %v in pieces of %d", all, endedAll, errAll, pieces, endedPieces, errPieces, size)
		}
		for _, m := range all {
			if len(m) > limit {
				t.Errorf("a message of %d bytes", len(m))
			}
		}
	})
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte{})
	f.Add(response{typeURL: clusterType, nonce: "1", resources: []resource{resourceOf("a", "1")}}.marshal())
	f.Add(requestOf(clusterType, "4", []string{"a"}, map[string]string{"b": "2"}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		parseRequest(raw)
		p, err := parseResponse(raw)
		if err != nil {
			return
		}
		again, err := parseResponse(p.marshal())
		if err != nil || len(again.resources) != len(p.resources) || again.typeURL != p.typeURL || again.nonce != p.nonce {
			t.Errorf("%+v comes back as %+v, %v", p, again, err)
		}
		for i, r := range p.resources {
			if got := again.resources[i]; got.name != r.name || got.version != r.version || !bytes.Equal(got.raw, r.raw) {
				t.Errorf("%+v comes back as %+v", r, got)
			}
		}
	})
}
