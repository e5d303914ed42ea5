package scenario

import (
	"testing"

	"outrider.dev/test/mutants"
)

// Faults of the diagnosis that the simulated pods show.
func TestEveryMutantIsNoticed(t *testing.T) {
	const deleted = "TestDiagnosisOfSimulatedPodsInDeletion"
	mutants.Run(t, "TestDiagnosisOfSimulatedPods", map[string]mutants.Mutant{
		"a proxy that never ran may have listened":  {File: "../diagnose/race.go", From: `s.Unborn == nil`, To: `true`},
		"a refused call uses up the memory":         {File: "../diagnose/chain/chain.go", From: `r.Reason == "OOMKilled"`, To: `false`},
		"an undated end comes at once":              {File: "../diagnose/chain/chain.go", From: `end == y.Quote.At`, To: `false`},
		"a proxy dies only while something runs":    {File: "../diagnose/proxy.go", From: `app == nil && !oom && !s.missed(v)`, To: `app == nil`},
		"a proxy of a second should be ready":       {File: "../diagnose/proxy.go", From: `f.Confidence == result.Possible && s.Proxy.Restarts == 0`, To: `false`},
		"a made-up end loses its node":              {File: "../diagnose/state.go", From: `s.MadeUp(c)`, To: `false`, Tests: deleted},
		"a call may kill a program that is stopped": {File: "../diagnose/chain/deleted.go", From: `ended == doctor.No || r.Exit == nil || *r.Exit == 0`, To: `true`, Tests: deleted},
		"a proxy that starts has left":              {File: "../diagnose/chain/deleted.go", From: `y.Last.Compare(last.Ready.At) == evidence.Before`, To: `false`, Tests: deleted},
		"a proxy that never was ready has left":     {File: "../diagnose/chain/deleted.go", From: `c.unreadyAtStop(last)`, In: `return c.unreadyAtStop(last)`, To: `false`, Tests: deleted},
		"a caller may start after the end":          {File: "../diagnose/chain/deleted.go", From: `caller.Started.Compare(left) == evidence.After`, To: `false`, Tests: deleted},
		"a stopped init container has failed":       {File: "../diagnose/proxy.go", From: `s.StoppedIn(c.Name, *r)`, To: `false`, Tests: deleted},
		"an init container ran once":                {File: "../diagnose/proxy.go", From: `r.Running || s.EndedByStop(c.Name, *r) != no`, To: `r.Running`, Tests: deleted},
		"a hook that fails ends nothing":            {File: "../diagnose/state.go", From: `f.Code == "hold-fails-open" && c == s.Proxy`, To: `false`, Tests: deleted},
	})
}
