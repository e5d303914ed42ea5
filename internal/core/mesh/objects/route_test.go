package objects

import (
	"regexp/syntax"
	"testing"
)

// The estimate is at least the size of the compiled program, and at most twice that.
func TestProgramSize(t *testing.T) {
	for _, expr := range []string{
		"", "a", "abc", "a*", "a+?", "a?b", "(a|b0){1,900}(x{1,99}){1,9}.*", "(?:ab|cd|[0-9]+){7}", "a{3,}", "a{0}", "(a(b(c)?)*)+", "^/api/[^/]+$",
		`\bfoo\b`, "(?i)kelvin", "[é-ü]{9}", "(?s:.)*x", "(?:)|a", "a|b|cd|e?", "((a{2,5}){2,5}){2,5}", `(?:\w*){50}`, "[[:alpha:]_]{1,63}", "$|^",
	} {
		parsed, err := syntax.Parse(expr, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		got := programSize(parsed) + programEnds
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for _, inst := range program.Inst {
			if want++; inst.Op == syntax.InstRuneAny || inst.Op == syntax.InstRuneAnyNotNL {
				want += bytesOfAny
			}
			for _, c := range inst.Rune {
				if inst.Op == syntax.InstRune && c > 0x7f {
					want += bytesOfRange
				}
			}
		}
		if got < want || got > 2*want {
			t.Errorf("%q: %d, compiled %d", expr, got, want)
		}
	}
}
