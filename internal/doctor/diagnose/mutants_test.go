package diagnose

import (
	"testing"

	"outrider.dev/test/mutants"
)

// The tests notice each mutant of the code that decides between a race and another cause.
func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestIncidents|TestReplay|TestOrderBroken|TestAParkedCallIsNoRace|TestAnAssumedZoneIsNotCertain|TestUnnamedDestinationIsUndecided|TestGatesAreNoCallers|TestBareEnvoy|TestSlowStart|TestAProxyThatWasReplaced", map[string]mutants.Mutant{
		"what the capture leaves out is a race":        {File: "race.go", From: `fate.Taken == no || s.Capture.Parks || s.listensAnyway(fate, y)`, To: `s.Capture.Parks || s.listensAnyway(fate, y)`},
		"a call that is parked is a race":              {File: "race.go", From: `fate.Taken == no || s.Capture.Parks || s.listensAnyway(fate, y)`, To: `fate.Taken == no || s.listensAnyway(fate, y)`},
		"a call of a ready proxy is a race":            {File: "race.go", From: `fate.Answer == yes || fate.Run < 0`, To: `fate.Run < 0`},
		"within the clocks' error it is sure":          {File: "race.go", From: `c.readyWhen`, To: `false`},
		"what recurs is a race":                        {File: "race.go", From: `effect.Recurs != nil`, To: `false`},
		"the proxy's own word is not heard":            {File: "facts/serving.go", From: `v.Ready.At.Known() && at.Compare(v.Ready.At) == evidence.After && v.Stays(at)`, To: `false`},
		"a gate's own lines are calls":                 {File: "calls/calls.go", From: `bytes.Contains(h.Line.Text, []byte(contract.GateSays))`, To: `false`},
		"a proxy that was told to stop stays":          {File: "shutdown.go", From: `last.Stops.At.Known() && s.Proxy.Kind == startup.Plain`, To: `false`},
		"a restart does not hide the first start":      {File: "slow.go", From: `start.AtMost`, To: `false`},
		"a hook that failed is a death":                {File: "race.go", From: `!s.HookFailed()`, To: `true`},
		"a likely zone of the proxy is certain":        {File: "race.go", From: `assumed = s.ProxyZone`, To: ``},
		"long after the proxy's start it is sure":      {File: "race.go", From: `c.late`, To: `false`},
		"a proxy that was replaced died":               {File: "proxy.go", From: `s.Replaced(v.Run)`, To: `false`},
		"each exit at a replacement is one":            {File: "facts/serving.go", From: `*r.Exit == 0`, To: `true`},
		"a later replacement explains it":              {File: "facts/serving.go", From: `e.First.Compare(r.Finished) != evidence.After`, To: `true`},
		"what may be left out is sure":                 {File: "race.go", From: `!s.Capture.LeavesOut()`, To: `true`},
		"a hold that is not there is no cause":         {File: "race.go", From: `held`, In: "case held:", To: `false`},
		"a plan is not held against the start":         {File: "order.go", From: `v.How == startup.StartedTooEarly && v.By != startup.Forever`, To: `false`},
		"within the error a start is early":            {File: "order.go", From: `to.Run(0).Started.Latest()`, To: `to.Run(0).Started.At`},
		"a zone that is likely is certain":             {File: "race.go", From: `!c.placed`, To: `true`},
		"a log that is not there says nothing":         {File: "proxy.go", From: `s.Proxy.Log(now.Number) == nil`, To: `false`},
		"the replay has no remedy":                     {File: "replay/replay.go", From: `c.Health, c.Kind = startup.PostStart, startup.Plain`, To: ``},
		"the replay does not look at what is observed": {File: "replay/replay.go", From: `of.Calls = []simulate.Call{call}`, To: ``},
	})
}
