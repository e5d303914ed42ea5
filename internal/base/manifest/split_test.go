package manifest

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Split finds every document. Commands would silently ignore a document that it misses.
func TestSplit(t *testing.T) {
	for text, want := range map[string][]string{
		"a: 1\n---\nb: 2\n":                      {"1 a: 1", "3 b: 2"},
		"a: 1\n...\nb: 2\n":                      {"1 a: 1 ...", "3 b: 2"},
		"a: 1\n...\n# why\n\nb: 2\n":             {"1 a: 1 ... # why", "5 b: 2"},
		"a: 1\n...\n---\nb: 2\n...\n":            {"1 a: 1 ...", "4 b: 2 ..."},
		"a: 1\r\n... \r\nb: 2\r\n":               {"1 a: 1 ...", "3 b: 2"},
		"\xef\xbb\xbf%YAML 1.2\n--- # one\na: 1": {"3 a: 1"},
		"--- {a: 1}\n---\t{b: 2}\n":              {"1 {a: 1}", "2 {b: 2}"},
		"a: |\n  ...\n  x\n":                     {"1 a: | ... x"},
	} {
		var got []string
		var raw strings.Builder
		for s := range Split([]byte(text)) {
			raw.Write(s.Raw())
			if !s.Empty() {
				got = append(got, strings.Join(append([]string{strconv.Itoa(s.Line)}, strings.Fields(string(s.Body))...), " "))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		if raw.String() != text {
			t.Errorf("%q became %q", text, raw.String())
		}
	}
}

// A file can have a document in every four bytes, so a segment must not allocate memory. With copies, "outrider
// plan" of 3 million lines with --- needed 570 MB.
func TestSplitDoesNotCopy(t *testing.T) {
	count := func(documents int) (segments int, allocations float64) {
		text := bytes.Repeat([]byte("---\n"), documents)
		allocations = testing.AllocsPerRun(1, func() {
			segments = 0
			for s := range Split(text) {
				if s.Empty() {
					segments++
				}
			}
		})
		return segments, allocations
	}
	_, few := count(10)
	segments, many := count(100_000)
	if segments != 100_001 || many > few+100 { // the runtime makes some allocations itself
		t.Errorf("%d segments with %v allocations: want 100001, with about the %v of ten", segments, many, few)
	}
}

// The raw texts of the segments together are the file, for any file.
func FuzzSplit(f *testing.F) {
	for _, text := range []string{"a: 1\n---\nb: 2\n", "\xef\xbb\xbf%YAML 1.2\n--- # one\na: 1", "--- {a: 1}\n...\n---x\n%\n", "---", "...\r\n%a\nb"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var raw []byte
		line := 0
		for s := range Split(text) {
			raw = append(raw, s.Raw()...)
			if s.Line < line {
				t.Errorf("%q: a body at line %d after one at line %d", text, s.Line, line)
			}
			line = s.Line
		}
		if !bytes.Equal(raw, text) {
			t.Errorf("%q became %q", text, raw)
		}
	})
}
