package mechanism

import (
	"testing"

	"outrider.dev/test/mutants"
)

func TestOrderByHandStaysInExcludedPods(t *testing.T) {
	mutants.Run(t, "TestExcluded", map[string]mutants.Mutant{
		"edges by hand are forgotten": {File: "choose.go", From: `c.pod.Excluded != "" && e.By != ""`, To: `false`},
	})
}
