package diagnose

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/kinds"
)

// The catalogue contains exactly the codes of the rules and of the tables that they use.
func TestEachCodeIsInTheCatalogue(t *testing.T) {
	var rules strings.Builder
	for _, pattern := range []string{"*.go", "chain/*.go", "node/*.go", "nopod/*.go", "phases/*.go", "states/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				rules.Write(text)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?:[Cc]ode: |Code = )"([a-z-]+)"`).FindAllStringSubmatch(rules.String(), -1) {
		if _, err := kinds.Of(m[1]); err != nil {
			t.Error(err)
		}
	}
	for _, k := range kinds.All() {
		if !strings.Contains(rules.String(), `"`+string(k.Code)+`"`) {
			t.Errorf("no rule finds %s", k.Code)
		}
	}
}
