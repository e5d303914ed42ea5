package capturescope

import (
	"testing"

	"outrider.dev/test/mutants"
)

func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestTakes|TestParks", map[string]mutants.Mutant{
		"loopback is captured":                     {File: "scope.go", From: `d.Loopback()`, In: `case d.Loopback():`, To: `false`},
		"a capture that is told not to parks":      {File: "scope.go", From: `in.Park != capture.ParkOff`, To: `true`},
		"what no one is seen to capture is parked": {File: "scope.go", From: `ours && (byNode || written >= 0)`, To: `ours`},
		"another mesh's capture parks":             {File: "scope.go", From: `ours && (byNode || written >= 0)`, To: `byNode || written >= 0`},
	})
}
