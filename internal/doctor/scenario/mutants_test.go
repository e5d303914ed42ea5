package scenario

import (
	"testing"

	"outrider.dev/test/mutants"
)

// Faults of the diagnosis that the simulated pods show.
func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestDiagnosisOfSimulatedPods", map[string]mutants.Mutant{
		"a proxy that never ran may have listened": {File: "../diagnose/race.go", From: `s.Unborn == nil`, To: `true`},
		"a refused call uses up the memory":        {File: "../diagnose/chain/chain.go", From: `r.Reason == "OOMKilled"`, To: `false`},
		"an undated end comes at once":             {File: "../diagnose/chain/chain.go", From: `end == y.Quote.At`, To: `false`},
		"a proxy dies only while something runs":   {File: "../diagnose/proxy.go", From: `app == nil && !oom && !s.missed(v)`, To: `app == nil`},
		"a proxy of a second should be ready":      {File: "../diagnose/proxy.go", From: `f.Confidence == result.Possible && s.Proxy.Restarts == 0`, To: `false`},
	})
}
