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
		"absences are added up":                       {File: "capture.go", From: `w.worked, w.lost, w.absent, w.silent, w.since = true, false, 0, 0, time.Time{}`, To: `w.worked, w.lost, w.silent, w.since = true, false, 0, time.Time{}`},
		"a busy machine loses capture":                {File: "capture.go", From: `v == unknown && !w.worked && !w.outbound`, To: `v == unknown`},
		"a busy machine brings capture back":          {File: "capture.go", From: `doubt && !was`, To: `false`},
		"a missing route brings capture back":         {File: "capture.go", From: `w.lost || v == absent && (w.absent >= absences || !inPlace)`, To: `v == absent && (w.absent >= absences || !inPlace)`},
		"outbound that never worked is required":      {File: "capture.go", From: `w.outbound && !w.worked && w.tries > 0`, To: `false`},
		"inbound that never worked is required":       {File: "capture.go", From: `c.ways[i+1].worked`, In: "case !w.outbound && !w.worked && w.tries >= firstTries && c.ways[i+1].worked", To: `false`},
		"without rules inbound is not required":       {File: "capture.go", From: `c.ways[i+1].worked`, In: "case !w.outbound && !w.worked && w.tries >= firstTries && c.ways[i+1].worked", To: `true`},
		"rules of now are taken for older ones":       {File: "capture.go", From: `w.tries >= firstTries`, In: "case !w.outbound && !w.worked && w.tries >= firstTries", To: `true`},
		"outbound is tried for ever":                  {File: "capture.go", From: `outbound && !w.worked && w.tries >= firstTries`, To: `false`},
		"outbound is tried once":                      {File: "capture.go", From: `outbound && !w.worked && w.tries >= firstTries`, To: `outbound && !w.worked && w.tries > 0`},
		"outbound is not tried when rules come":       {File: "capture.go", From: `c.ways[i+1].tries = 0`, To: ``},
		"what is not known is in place":               {File: "capture.go", From: `v == noRoute || !w.worked || w.silent >= absences`, To: `v == noRoute || !w.worked`, Tests: "TestWhatIsNotKnownIsSaid"},
		"a busy machine makes a note":                 {File: "capture.go", From: `w.silent >= absences`, To: `true`, Tests: "TestWhatIsNotKnownIsSaid"},
		"the time counts since the last attempt":      {File: "capture.go", From: `w.since.IsZero()`, In: "if w.since.IsZero() {", To: `true`, Tests: "TestWhatIsNotKnownIsSaid"},
		"a loss is not counted":                       {File: "capture.go", From: `c.lost.Add(1)`, To: ``},
		"a pod that stops is tried":                   {File: "capture.go", From: `!c.o.Provable()`, In: "if !c.o.Provable() {", To: `false`},
		"an attempt in a pod that stops counts":       {File: "capture.go", From: `ctx.Err() != nil || !c.o.Provable()`, To: `ctx.Err() != nil`},
		"a loss is confirmed at the usual pace":       {File: "capture.go", From: `c.inPlace.Load() && !doubt`, To: `c.inPlace.Load()`},
		"a lost pod is tried as quickly as a new one": {File: "capture.go", From: `c.held`, In: "case c.held:", To: `false`},
		"the app's listener is the proxy's":           {File: "proof.go", From: `return ok`, To: `return true`, Tests: "TestTheArrivalOfAnotherIsNone"},
		"the source port does not matter":             {File: "proof.go", From: `contract.OutboundProof(to.Addr())`, In: "if contract.OutboundProof(to.Addr()) {\n\t\tfrom = 0", To: `true`, Tests: "TestTheArrivalOfAnotherIsNone"},
		"older rules are asked by the proof's port":   {File: "proof.go", From: `port = contract.OldProofPort`, To: ``, Tests: "TestRulesOfAnOlderRelease"},
		"a prohibited route loses capture":            {File: "proof.go", From: `unix.EACCES`, To: `unix.EAFNOSUPPORT`, Tests: "TestCaptureWithoutARoute"},
		"a router's answer is no route":               {File: "proof.go", From: `return &answerError{errno}`, To: `return errno`, Tests: "TestARoutersAnswerIsAnAbsence"},
	})
}
