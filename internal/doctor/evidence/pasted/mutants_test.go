package pasted

import (
	"testing"

	"outrider.dev/test/mutants"
)

// The tests notice each mutant of the code that keeps what is no evidence out.
func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestByFile|TestHeadings", map[string]mutants.Mutant{
		"a word of something else is overlooked": {File: "words.go", From: `neutral.MatchString(w)`, To: `true`},
		"the first of two containers counts":     {File: "words.go", From: `container != "" && container != c`, To: `false`},
		"the first of two proxies counts":        {File: "words.go", From: `len(of) != 1`, To: `len(of) == 0`},
		"any container may be the sidecar":       {File: "words.go", From: `word == "sidecar" && len(of) == 0 && len(p.Apps) > 1`, To: `false`},
		"a heading of another pod is of this":    {File: "pasted.go", From: `aside.MatchString(heading)`, To: `false`},
		"what is no log is one":                  {File: "pasted.go", From: `announces.MatchString(heading) && !ofObject.Match(text)`, To: `true`},
		"lines need not agree":                   {File: "labels.go", From: `n > 1 && (c != container || p != pod)`, To: `false`},
	})
}
