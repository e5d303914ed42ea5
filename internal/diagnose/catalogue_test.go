package diagnose

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the page's part about codes")

// The page has a heading for each code. What is under them is written by go test -update.
func TestPageHasEachCode(t *testing.T) {
	const page, mark = "../../docs/diagnose.md", "## Codes\n"
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
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n\n%s\n", k.Code, strings.ToUpper(k.Title[:1])+k.Title[1:], k.Explanation)
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

// Each code in the rules is in the catalogue, and the other way round.
func TestEachCodeIsInTheCatalogue(t *testing.T) {
	used := map[string]bool{}
	for _, file := range []string{"race.go", "status.go", "calls.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)(?:Code: |Code = |Code, f\.Confidence = |^\t+\{(?:"[a-z-]+", )?)"([a-z]+(?:-[a-z]+)+)"`).FindAllStringSubmatch(string(text), -1) {
			used[m[1]] = true
		}
	}
	for code := range used { // any order: each is looked up for itself
		if _, err := KindOf(code); err != nil {
			t.Error(err)
		}
	}
	for _, k := range Kinds() {
		if !used[string(k.Code)] {
			t.Errorf("no rule finds %s", k.Code)
		}
	}
}
