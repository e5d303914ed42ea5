package diagnose

import (
	"os"
	"regexp"
	"testing"
)

// The catalogue contains exactly the codes of the rules.
func TestEachCodeIsInTheCatalogue(t *testing.T) {
	used := map[string]bool{}
	for _, file := range []string{"race.go", "order.go", "slow.go", "notstarted.go", "ends.go", "proxy.go", "shutdown.go", "destination.go", "notcreated.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)(?:[Cc]ode: |Code = |cmp\.Or\(row\.code, |Code, f\.Confidence = |^\t+\{(?:facts\.[A-Za-z]+, )?)"([a-z]+(?:-[a-z]+)+)"`).FindAllStringSubmatch(string(text), -1) {
			used[m[1]] = true
		}
	}
	for code := range used { // in any order: each is checked independently
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
