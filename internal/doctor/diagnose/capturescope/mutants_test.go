package capturescope

import (
	"testing"

	"outrider.dev/test/mutants"
)

func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestTakes|TestParks|TestOmitted|TestOnlyChecks", map[string]mutants.Mutant{
		"loopback is captured":                     {File: "scope.go", From: `d.Loopback()`, In: `case d.Loopback():`, To: `false`},
		"a capture that is told not to parks":      {File: "scope.go", From: `in.Park != capture.ParkOff`, To: `true`},
		"what no one is seen to capture is parked": {File: "scope.go", From: `ours && (byNode || written >= 0)`, To: `ours`},
		"what a silent container does is known":    {File: "scope.go", From: `silent >= 0`, In: `omitted.Spec || silent >= 0`, To: `false`},
		"a mesh is known by its rights alone":      {File: "scope.go", From: `writers.MatchString(i.Name)`, To: `false`},
		"an image of a mesh is not known":          {File: "scope.go", From: `writers.MatchString(i.Image)`, To: `false`},
		"a check that applies rules only checks":   {File: "scope.go", From: `value != "false"`, To: `true`},
		"another mesh's capture parks":             {File: "scope.go", From: `ours && (byNode || written >= 0)`, To: `byNode || written >= 0`},
	})
}
