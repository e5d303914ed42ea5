package relay

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"outrider.dev/internal/base/wire"
)

// beforeNode is the data that Envoy sends before its first request.
var beforeNode = slices.Concat(make([]byte, prefaceSize), frame(4, 0, 0, make([]byte, 6)), frame(headersFrame, 4, 1, []byte{0x82}))

// first returns Envoy's first request, with the given number of bytes of extensions.
func first(extensions int) []byte {
	node := wire.AppendField(wire.AppendField(nil, 1, "id"), 3, "metadata")
	for ; extensions > 0; extensions -= 100 {
		node = wire.AppendField(node, extensionsField, make([]byte, 98))
	}
	node = wire.AppendField(node, 10, "feature")
	return append(wire.AppendField(nil, nodeField, node), requestOf(clusterType, "", []string{"a"}, nil)...)
}

// framed returns data as DATA frames of a stream.
func framed(data []byte) (out []byte) {
	for piece := range slices.Chunk(data, maxFrame) {
		out = append(out, frame(dataFrame, 0, 1, piece)...)
	}
	return out
}

// passed returns the bytes that an opening forwards if raw arrives in pieces of the given size.
func passed(raw []byte, size int) (out []byte, o *opening) {
	o = &opening{preface: prefaceSize}
	for piece := range slices.Chunk(raw, size) {
		out = append(out, o.take(piece)...)
	}
	return out, o
}

func TestExtensionsOfTheNodeStayHere(t *testing.T) {
	next := wire.Frame(requestOf(listenerType, "1", nil, nil))
	full := wire.Frame(first(60_000))
	short := wire.Frame(first(0))
	names := wire.Frame(append(first(60_000), bytes.Repeat([]byte{26, 1, 'x'}, 10_000)...))
	shortNames := wire.Frame(append(first(0), bytes.Repeat([]byte{26, 1, 'x'}, 10_000)...))
	for name, tt := range map[string]struct{ sent, want []byte }{
		"a request":              {framed(full), short},
		"two requests":           {framed(slices.Concat(full, next)), slices.Concat(short, next)},
		"and then a ping":        {append(framed(full), frame(6, 0, 0, make([]byte, 8))...), short},
		"a part of a request":    {framed(names[:window]), shortNames[:window-(len(names)-len(shortNames))]},
		"no extensions":          {framed(short), short},
		"no node":                {framed(next), next},
		"more than a window":     {framed(wire.Frame(first(70_000))[:window]), wire.Frame(first(70_000))[:window]},
		"a part of a frame":      {frame(dataFrame, 0, 1, full)[:30_000], nil},
		"another stream between": {slices.Concat(framed(full[:50]), frame(dataFrame, 0, 3, full[50:])), full[:50]},
		"the end of the stream":  {frame(dataFrame, endStream, 1, full), full},
		"a frame that is large":  {frame(dataFrame, 0, 1, make([]byte, maxOpening)), make([]byte, maxOpening)},
	} {
		t.Run(name, func(t *testing.T) {
			raw := slices.Concat(beforeNode, tt.sent)
			for _, size := range []int{1, 100, len(raw)} {
				out, o := passed(raw, size)
				if !bytes.HasPrefix(out, beforeNode) {
					t.Fatalf("%x, want %x first", out[:min(len(out), 100)], beforeNode)
				}
				var data []byte // payload of the first stream
				last := byte(0)
				for rest := out[len(beforeNode):]; len(rest) > 0; {
					n := frameHead + int(rest[0])<<16 + int(rest[1])<<8 + int(rest[2])
					if last = rest[3]; last == dataFrame && rest[8] == 1 {
						data = append(data, rest[frameHead:n]...)
					}
					rest = rest[n:]
				}
				if !bytes.Equal(data, tt.want) {
					t.Errorf("in pieces of %d: %d bytes go on; want %d", size, len(data), len(tt.want))
				}
				if want := len(raw) - len(out); tt.want != nil && (o.spared > want+100 || o.spared < want-100) {
					t.Errorf("in pieces of %d: %d bytes are spared, want about %d", size, o.spared, want)
				}
				if name == "and then a ping" && last != 6 {
					t.Errorf("the last frame is %d; want the ping", last)
				}
			}
		})
	}
}

// Removed bytes are added to Envoy's flow-control window, which would be used up otherwise. The frames that do
// this are placed between two frames of the control plane, and not before its first frame.
func TestSparedBytesAreGivenBack(t *testing.T) {
	long, short := wire.Frame(first(60_000)), wire.Frame(first(0))
	settings, response := frame(4, 0, 0, nil), frame(headersFrame, 4, 1, bytes.Repeat([]byte{1}, 100))
	var credit []byte
	for _, stream := range []uint32{0, 1} {
		credit = append(credit, frame(windowFrame, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(len(long)-len(short))))...)
	}
	for name, tt := range map[string]struct {
		sent [][]byte // frames of the control plane; the first one is sent before Envoy's request
		want []byte
	}{
		"settings before":   {[][]byte{settings, response}, slices.Concat(settings, credit, response)},
		"nothing before":    {[][]byte{nil, settings, response}, slices.Concat(settings, credit, response)},
		"a part of a frame": {[][]byte{settings[:4], settings[4:], response}, slices.Concat(settings, credit, response)},
		"all at once":       {[][]byte{nil, slices.Concat(settings, response)}, slices.Concat(settings, response, credit)},
	} {
		t.Run(name, func(t *testing.T) {
			tee := newTee(&Relay{store: storeAt(t, t.TempDir())})
			var got []byte
			for i, p := range tt.sent {
				out, err := tee.responses.read(p)
				if got = append(got, out...); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					if _, err := tee.requests.read(slices.Concat(beforeNode, framed(long))); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !bytes.Equal(got, tt.want) {
				t.Errorf("%x\nwant %x", got, tt.want)
			}
		})
	}
}

// FuzzOpening checks that the result does not depend on how the bytes are divided, and that at most
// a window is buffered.
func FuzzOpening(f *testing.F) {
	for _, data := range [][]byte{wire.Frame(first(300)), append(wire.Frame(first(100)), wire.Frame(requestOf(listenerType, "1", nil, nil))...), nil} {
		f.Add(append(slices.Clone(beforeNode), framed(data)...), uint8(7))
	}
	f.Fuzz(func(t *testing.T, raw []byte, size uint8) {
		all, one := passed(raw, max(1, len(raw)))
		pieces, two := passed(raw, max(1, int(size)))
		a, _, _ := decoded(all[min(prefaceSize, len(all)):], window, copyBuffer)
		b, _, _ := decoded(pieces[min(prefaceSize, len(pieces)):], window, copyBuffer)
		if one.over && two.over && (!slices.Equal(a, b) || one.spared != two.spared) {
			t.Errorf("%q at once, %q in pieces of %d", a, b, size)
		}
		if n := len(two.held); n > maxOpening+int(size)+frameHead {
			t.Errorf("%d bytes are held", n)
		}
	})
}
