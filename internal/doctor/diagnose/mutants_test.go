package diagnose

import (
	"testing"

	"outrider.dev/test/mutants"
)

// The tests notice each mutant of the code that decides between a race and another cause.
func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestIncidents|TestReplay|TestOrderBroken|TestAParkedCallIsNoRace|TestUnnamedDestinationIsUndecided|TestGatesAreNoCallers|TestBareEnvoy|TestSlowStart|TestAProxyThatWasReplaced", map[string]mutants.Mutant{
		"what the capture leaves out is a race":        {File: "race.go", From: `takes == no || s.capture.Parks`, To: `s.capture.Parks`},
		"a call that is parked is a race":              {File: "race.go", From: `takes == no || s.capture.Parks`, To: `takes == no`},
		"a call of a ready proxy is a race":            {File: "race.go", From: `listens == yes || which < 0 || s.diedBefore(which, y.at) && !s.hookFailed()`, To: `which < 0 || s.diedBefore(which, y.at)`},
		"within the clocks' error it is sure":          {File: "race.go", From: `run.ready.At.Known() || takes == perhaps`, To: `false`},
		"what recurs is a race":                        {File: "race.go", From: `recurs`, In: `recurs {`, To: `false`},
		"the proxy's own word is not heard":            {File: "serving.go", From: `v.ready.At.Known() && at.Compare(v.ready.At) == evidence.After && v.stays(at)`, To: `false`},
		"a gate's own lines are calls":                 {File: "symptom.go", From: `bytes.Contains(h.Line.Text, []byte(contract.GateSays))`, To: `false`},
		"a proxy that was told to stop stays":          {File: "calls.go", From: `last.stops.At.Known() && s.proxy.Kind == startup.Plain`, To: `false`},
		"a restart does not hide the first start":      {File: "slow.go", From: `start.AtMost`, To: `false`},
		"a hook that failed is a death":                {File: "race.go", From: `!s.hookFailed()`, To: `true`},
		"a likely zone of the proxy is certain":        {File: "race.go", From: `cmp.Or(s.placed(app, &y), s.proxyZone)`, To: `s.placed(app, &y)`},
		"long after the proxy's start it is sure":      {File: "race.go", From: `s.late(y.at, run)`, To: `false`},
		"a proxy that was replaced died":               {File: "race.go", From: `s.replaced(v.Run)`, To: `false`},
		"each exit at a replacement is one":            {File: "race.go", From: `*r.Exit == 0`, To: `true`},
		"a later replacement explains it":              {File: "race.go", From: `e.First.Compare(r.Finished) != evidence.After`, To: `true`},
		"what may be left out is sure":                 {File: "race.go", From: `!s.capture.LeavesOut()`, To: `true`},
		"a hold that is not there is no cause":         {File: "race.go", From: `held`, In: "case held:", To: `false`},
		"a plan is not held against the start":         {File: "order.go", From: `v.How == startup.StartedTooEarly && v.By != startup.Forever`, To: `false`},
		"within the error a start is early":            {File: "order.go", From: `to.Run(0).Started.Latest()`, To: `to.Run(0).Started.At`},
		"a zone that is likely is certain":             {File: "race.go", From: `assumed == nil`, To: `true`},
		"the replay has no remedy":                     {File: "replay.go", From: `c.Health, c.Kind = startup.PostStart, startup.Plain`, To: ``},
		"the replay does not look at what is observed": {File: "replay.go", From: `of.Calls = []simulate.Call{call}`, To: ``},
	})
}
