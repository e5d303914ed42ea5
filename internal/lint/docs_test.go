package lint

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The page has a heading for each code, which is where --explain and SARIF point. What is
// under them is written by go test -update.
func TestPageHasEachCode(t *testing.T) {
	const page, mark = "../../docs/lint.md", "They are stable: what is switched off stays off.\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(text), mark)
	if !ok {
		t.Fatalf("%s has no line %q", page, mark)
	}
	var b strings.Builder
	for _, k := range Kinds() {
		fmt.Fprintf(&b, "\n### %s\n\n*%s*: %s.\n\n%s\n", k.Code, k.Severity, k.Title, k.Explanation)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+mark+b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(b.String(), after); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
