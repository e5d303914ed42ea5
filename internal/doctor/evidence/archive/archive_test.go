package archive

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// A log in an archive can be read from any offset, like a file.
func TestPackedText(t *testing.T) {
	var text []byte
	for i := range 100_000 {
		text = fmt.Appendf(text, "line %d\n", i)
	}
	s := New(Limits{Unpack: 1 << 30, Entry: 1 << 30, Memory: 1 << 30})
	p, err := s.Pack(bytes.NewReader(text))
	if err != nil || p.size != int64(len(text)) || len(p.pieces) < 3 || s.kept*2 > p.size {
		t.Fatalf("%v, size %d, %d pieces of %d bytes", err, p.size, len(p.pieces), s.kept)
	}
	f, size, _ := p.Open()
	for _, from := range []int64{0, piece - 1, piece, 3, size - 1} {
		got := make([]byte, min(piece+2, size-from))
		if _, err := f.ReadAt(got, from); err != nil || !bytes.Equal(got, text[from:][:len(got)]) {
			t.Errorf("from %d: %v", from, err)
		}
	}
	if p, err := s.Pack(bytes.NewReader(append([]byte{0x1f, 0x8b}, text...))); err != nil || p.size != 2 {
		t.Errorf("of what is compressed %d bytes are kept, %v", p.size, err)
	}
	if n, err := f.ReadAt(make([]byte, 2), size-1); n != 1 || err != io.EOF {
		t.Errorf("beyond the end: %d, %v", n, err)
	}
}
