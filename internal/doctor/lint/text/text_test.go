package text

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"outrider.dev/internal/base/finding"
)

// Only the part of a very long line around the evidence is shown, and the column of the evidence is right.
func TestPlaceInALongLine(t *testing.T) {
	for before := range 1030 { // so many that the part begins at each possible byte of a multi-byte character
		s := Read("f", []byte("{x: '"+strings.Repeat("ö✓", before)+strings.Repeat("a", before%5)+"', y: HERE, z: '"+strings.Repeat("é", 9000)+"'}"))
		got := s.Objects[0].Place([]any{"y"}, "HERE")
		text := []rune(got.Text)
		if at := got.Column - 1 - got.Skipped; at < 0 || !strings.HasPrefix(string(text[at:]), "HERE") || got.Width != len("HERE") || len(got.Text) > 2*longLine {
			t.Errorf("behind %d characters: %d of %d skipped, %d bytes shown", before, got.Skipped, got.Column-1, len(got.Text))
		}
	}
}

// Conversions from offset to position and back agree, also in very long lines and in any order of look-ups.
func TestOffsetsAndPositions(t *testing.T) {
	text := "a: é\n" + strings.Repeat("größe ✓ ", 3000) + "\n\nlast"
	s := Read("f", []byte(text))
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

// Each object of a list is parsed separately. Otherwise the whole list would be parsed again for each of its objects.
func TestAnObjectOfAListIsReadByItself(t *testing.T) {
	s := Read("f", []byte("apiVersion: v1\nitems:\n- kind: Pod\n  a: 1\n- kind: Pod\n  a: 2\nkind: List\n"))
	if _, _, alone := s.part(s.Objects[1].Node); len(s.Objects) != 2 || alone == nil {
		t.Errorf("%d objects, the last one alone: %v", len(s.Objects), alone)
	}
}
