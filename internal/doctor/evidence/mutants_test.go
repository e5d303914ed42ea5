package evidence

import (
	"testing"

	"outrider.dev/test/mutants"
)

func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestScan.*", map[string]mutants.Mutant{
		"a time ends with its block":               {File: "scan.go", From: `t.at, t.before = 0, t.carried`, To: `t.carried, t.at, t.before = Time{}, 0, Time{}`},
		"a clock's day is of no account":           {File: "scan.go", From: `t.layout.Dateless()`, To: `false`, Survives: "the log of the test ends before midnight"},
		"lines after a hit end with its block":     {File: "scan.go", From: `next < b.first+b.len()`, To: `next < b.first`},
		"lines before a hit begin with its block":  {File: "scan.go", From: `if more := n - i; more > 0`, To: `if more := n - i; more > n`},
		"a text beyond the limit of a line counts": {File: "search.go", From: `i-int(b.ends[line-1]) > MaxLine`, To: `false`},
		"a text within another one is overlooked":  {File: "search.go", From: `!slices.Contains(ends[to], i)`, To: `false`},
		"all that looks like a hit is tried":       {File: "scan.go", From: `(s.tried[p] < tries || len(found)-j <= blockTries)`, To: `true`},
	})
}
