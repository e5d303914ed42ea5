package captures

import (
	"testing"

	"outrider.dev/test/mutants"
)

// The limits of repairs, and who is next.
func TestRepairMutants(t *testing.T) {
	const of = "repair.go"
	mutants.Run(t, "TestRunsAreLimited|TestFailuresAreTriedAgain|TestDueWhileARepairRuns", map[string]mutants.Mutant{
		"repairs without a limit":           {File: of, From: `len(r.runs) < freeRuns`, To: `len(r.runs) < 2*freeRuns`},
		"runs count for ever":               {File: of, From: `now.Sub(t) > window`, To: `false`},
		"many runs are no reason to wait":   {File: of, From: `return len(a.runs) < len(b.runs)`, To: `return len(a.runs) > len(b.runs)`},
		"two workers take one sandbox":      {File: of, From: `s.due.IsZero() || s.running`, To: `s.due.IsZero()`},
		"no worker is told after a repair":  {File: of, In: "s.running = false\n\tc.signal()", From: `c.signal()`, To: ``},
		"what the agent wrote is known":     {File: of, From: `r.Backend != capture.NFTables || !c.watcher.Once(s.id)`, To: `false`},
		"each failure is reported":          {File: of, From: `r.reason == ""`, To: `true`},
		"pauses do not grow":                {File: of, From: `retryBase<<min(s.failures-1, 16)`, To: `retryBase`},
		"pauses grow for ever":              {File: of, From: `min(retryBase<<min(s.failures-1, 16), slow)`, To: `retryBase<<min(s.failures-1, 16)`},
		"the first change is forgotten":     {File: of, From: `s.since, s.due = since, time.Now().Add(min(retryBase<<min(s.failures-1, 16), slow))`, To: `s.due = time.Now().Add(min(retryBase<<min(s.failures-1, 16), slow))`},
		"in place again as soon as not due": {File: of, From: `now.Sub(s.runs[n-1]) >= slow`, To: `true`},
	})
}
