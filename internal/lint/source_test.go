package lint

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"outrider.dev/internal/lint/finding"
)

// Offsets and places agree in whatever order they are looked for, also in a line of any length.
func TestOffsetsAndPositions(t *testing.T) {
	text := "a: é\n" + strings.Repeat("größe ✓ ", 3000) + "\n\nlast"
	s := newSource("f", text)
	random := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		offset := random.IntN(len(text) + 1)
		for offset < len(text) && !utf8.RuneStart(text[offset]) {
			offset--
		}
		before := text[:offset]
		want := finding.Position{Line: 1 + strings.Count(before, "\n"), Column: 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])}
		if got := s.position(offset); got != want {
			t.Fatalf("offset %d is at %v, want %v", offset, got, want)
		}
		if got := s.offset(want.Line, want.Column); got != offset {
			t.Fatalf("%v is at offset %d, want %d", want, got, offset)
		}
	}
}
