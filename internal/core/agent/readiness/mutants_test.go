package readiness

import (
	"testing"

	"outrider.dev/test/mutants"
)

// The tests notice each mutant of the code that decides whether capture is in place.
func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestCaptureForLife|TestCaptureIsNotTriedWhileThePodStops", map[string]mutants.Mutant{
		"one absence is a loss":                       {File: "capture.go", From: `w.absent >= absences || !inPlace`, To: `true`},
		"absences at the start are doubted":           {File: "capture.go", From: `w.absent >= absences || !inPlace`, To: `w.absent >= absences`},
		"absences are added up":                       {File: "capture.go", From: `w.worked, w.absent = true, 0`, To: `w.worked = true`},
		"a busy machine loses capture":                {File: "capture.go", From: `w.result.verdict == unknown && !w.worked`, To: `w.result.verdict == unknown`},
		"a busy machine brings capture back":          {File: "capture.go", From: `doubt && !was`, To: `false`},
		"outbound that never worked is required":      {File: "capture.go", From: `w.outbound && !w.worked`, In: "case w.outbound && !w.worked:", To: `false`},
		"outbound is tried for ever":                  {File: "capture.go", From: `w.tries == outboundTries`, To: `false`, Tests: "TestCaptureForLife"},
		"outbound is tried once":                      {File: "capture.go", From: `w.tries == outboundTries`, To: `w.tries > 0`},
		"a loss is not counted":                       {File: "capture.go", From: `c.lost.Add(1)`, To: ``},
		"a pod that stops is tried":                   {File: "capture.go", From: `!c.o.Provable()`, In: "if !c.o.Provable() {", To: `false`},
		"an attempt in a pod that stops counts":       {File: "capture.go", From: `ctx.Err() != nil || !c.o.Provable()`, To: `ctx.Err() != nil`},
		"a loss is confirmed at the usual pace":       {File: "capture.go", From: `c.inPlace.Load() && !doubt`, To: `c.inPlace.Load()`},
		"a lost pod is tried as quickly as a new one": {File: "capture.go", From: `c.held`, In: "case c.held:", To: `false`},
		"the app's listener is the proxy's":           {File: "proof.go", From: `return ok`, To: `return true`, Tests: "TestTheArrivalOfAnotherIsNone"},
		"the source port does not matter":             {File: "proof.go", From: `contract.ProofOutbound.Contains(a) || contract.ProofOutbound6.Contains(a)`, To: `true`, Tests: "TestTheArrivalOfAnotherIsNone"},
		"a router's answer is no route":               {File: "proof.go", From: `return &answerError{errno}`, To: `return errno`, Tests: "TestARoutersAnswerIsAnAbsence"},
	})
}
