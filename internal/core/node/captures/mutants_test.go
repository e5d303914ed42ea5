package captures

import (
	"testing"

	"outrider.dev/test/mutants"
)

// The limits of repairs, and who is next.
func TestRepairMutants(t *testing.T) {
	const of = "repair.go"
	mutants.Run(t, "TestRepairsAreLimited|TestRunsAreLimitedByTheirTime|TestOthersAreNotDelayed|TestFailuresAreTriedAgain|TestDueWhileARepairRuns", map[string]mutants.Mutant{
		"repairs without a limit":           {File: of, From: `repairs >= freeRepairs`, To: `repairs >= 2*freeRepairs`},
		"runs count for ever":               {File: of, From: `now.Sub(x.began) > window`, To: `false`},
		"each run is a repair":              {File: of, In: "if x.repairs {", From: `x.repairs`, To: `true`},
		"time without a limit":              {File: of, From: `r.spent() >= freeTime`, To: `false`},
		"due before its time":               {File: of, From: `!r.due.IsZero() && after.After(r.due)`, To: `false`},
		"much time is no reason to wait":    {File: of, From: `return x < y`, To: `return x > y`},
		"long runs hold all workers":        {File: of, From: `!held || !s.long(now)`, To: `true`},
		"a run that is not over is short":   {File: of, From: `r.running && now.Sub(r.runs[len(r.runs)-1].began) > longRun`, To: `false`},
		"two workers take one sandbox":      {File: of, From: `s.due.IsZero() || s.running`, To: `s.due.IsZero()`},
		"no worker is told after a repair":  {File: of, In: "s.ran(now, err != nil || repaired)\n\tc.signal()", From: `c.signal()`, To: ``},
		"what the agent wrote is known":     {File: of, From: `r.Backend != capture.NFTables || !c.watcher.Once(s.id)`, To: `false`},
		"each failure is reported":          {File: of, From: `r.reason == ""`, To: `true`},
		"pauses do not grow":                {File: of, From: `retryBase<<min(s.failures-1, 16)`, To: `retryBase`},
		"pauses grow for ever":              {File: of, From: `min(retryBase<<min(s.failures-1, 16), slow)`, To: `retryBase<<min(s.failures-1, 16)`},
		"the first change is forgotten":     {File: of, From: `s.since, s.due = since, time.Now().Add(min(retryBase<<min(s.failures-1, 16), slow))`, To: `s.due = time.Now().Add(min(retryBase<<min(s.failures-1, 16), slow))`},
		"in place again as soon as not due": {File: of, From: `now.Sub(s.runs[n-1].began) >= slow`, To: `true`},
	})
}
