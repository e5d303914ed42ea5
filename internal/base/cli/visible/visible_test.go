package visible

import (
	"bytes"
	"encoding/xml"
	"html"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"Größe ✓\tof\nlines":         "Größe ✓\tof\nlines",
		Paint("31", "a\x1b[31mb"):    Colour("31") + `a\x1b[31mb` + Colour("0"),
		"\x1b[2J\x1b]0;title\x07":    `\x1b[2J\x1b]0;title\x07`,
		"back\rand\x7f, \u009b2J":    `back\x0dand\u007f, \u009b2J`,
		"gpj.\u202eexe\u2066x\u200f": `gpj.\u202eexe\u2066x\u200f`,
		"not \xff UTF-8":             `not \xff UTF-8`,
		"\ufffd stays":               "\ufffd stays",
	} {
		if got := Text(in); got != want || Text(got) != want {
			t.Errorf("%q: %q; want %q", in, got, want)
		}
	}
	if got := Plain(Paint("1", "bold")); got != `\x1b[1mbold\x1b[0m` {
		t.Errorf("%q", got)
	}
}

// If a text is written in parts of any length, the output is the same, and only colours of [Colour] become escape
// sequences.
func TestWriter(t *testing.T) {
	in := "a\x1b[2Jb" + Paint("31;1", "Größe ✓") + "\u202e\xffc\x1b[31mred" + mark[:3]
	want := `a\x1b[2Jb` + "\x1b[31;1mGröße ✓\x1b[0m" + `\u202e\xffc\x1b[31mred\x1b` + mark[1:3]
	for n := 1; n <= len(in); n++ {
		var b bytes.Buffer
		w := &Writer{W: &b}
		for part := range slices.Chunk([]byte(in), n) {
			if written, err := w.Write(part); written != len(part) || err != nil {
				t.Fatal(written, err)
			}
		}
		if err := w.Flush(); err != nil || b.String() != want {
			t.Errorf("in parts of %d: %v, %q, want %q", n, err, b.String(), want)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := Plain(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, hidden) || Plain(got) != got {
			t.Errorf("%q: %q", s, got)
		}
		d, err := xml.NewDecoder(strings.NewReader("<a>"+html.EscapeString(got)+"</a>")), error(nil)
		for err == nil {
			_, err = d.Token()
		}
		if err != io.EOF {
			t.Errorf("%q is not well-formed: %v", got, err)
		}
	})
}

// Several goroutines may write at the same time. The race detector finds a missing lock.
func TestWriterOfSeveralGoroutines(t *testing.T) {
	var out strings.Builder
	w := &Writer{W: &out}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 100 {
				io.WriteString(w, "line\n")
			}
		})
	}
	writers.Wait()
	if err := w.Flush(); err != nil || out.String() != strings.Repeat("line\n", 400) {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
}
