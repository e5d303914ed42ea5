package manifest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A document that is not found would be ignored without a word.
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
		for _, s := range Split([]byte(text)) {
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
