package supervise

import (
	"testing"

	"outrider.dev/test/mutants"
)

func TestMutants(t *testing.T) {
	const table, model = "table.go", "TestEveryPairIsInTheTableOrIgnoredOnPurpose|TestNoSequenceOfEventsLeadsAstray|TestTerminateAlwaysLeadsToTheEnd|TestQuitEndsWithTheChild"
	const (
		begin       = "Begin:     {Starting, []Action{OpenStandby, StartChild}}"
		startingEnd = "standby.\n\t\tTerminate: {Draining, []Action{ArmGrace, AwaitDrained}}"
		serving     = "{Draining, []Action{ArmGrace, DrainChild, AwaitDrained}}"
		restarting  = "Terminate:      {DrainDown, []Action{ArmGrace, AwaitDrained}}"
		reviving    = "ExitFailed}},\n\t\tTerminate:  {Draining, []Action{ArmGrace, AwaitDrained}}"
		crash       = "ChildEnded: {Restarting, []Action{OpenStandby, WaitBackoff}}"
		drainReady  = "{Draining, []Action{CloseStandby, DrainChild}}"
		drainEnded  = "{DrainDown, []Action{OpenStandby, WaitBackoff}}"
		drainLost   = "ChildLost:  {Stopped, []Action{CloseStandby, ExitFailed}},\n\t\tDrained:"
		drained     = "Drained:    {Stopping, []Action{KillChild}}"
		downElapsed = "{Draining, []Action{StartChild}}"
		downDrained = "Drained:        {Stopped, []Action{CloseStandby, ExitOK}}"
		stopEnded   = "killed.\n\t\tChildEnded: {Stopped, []Action{CloseStandby, ExitOK}}"
	)
	mutants.Run(t, model, map[string]mutants.Mutant{
		"the first child starts before the standby listens": {File: table, In: begin, From: "OpenStandby", To: "WaitBackoff"},
		"Begin starts no child":                             {File: table, In: begin, From: "[]Action{OpenStandby, StartChild}", To: "[]Action{OpenStandby}"},

		"SIGTERM kills a starting child":                {File: table, In: startingEnd, From: "Draining", To: "Stopping"},
		"a starting child drains without the grace":     {File: table, In: startingEnd, From: "[]Action{ArmGrace, AwaitDrained}", To: "[]Action{AwaitDrained}"},
		"a serving child drains unawaited":              {File: table, In: serving, From: "[]Action{ArmGrace, DrainChild, AwaitDrained}", To: "[]Action{ArmGrace, DrainChild}"},
		"a serving child does not drain":                {File: table, In: serving, From: "[]Action{ArmGrace, DrainChild, AwaitDrained}", To: "[]Action{ArmGrace, AwaitDrained}"},
		"SIGTERM during a pause forgets the pause":      {File: table, In: restarting, From: "DrainDown", To: "Draining"},
		"SIGTERM kills a child that revives":            {File: table, In: reviving, From: "Draining", To: "Stopping"},
		"a reviving child drains without the grace":     {File: table, In: reviving, From: "[]Action{ArmGrace, AwaitDrained}", To: "[]Action{AwaitDrained}"},
		"a reviving child drains unawaited":             {File: table, In: reviving, From: "[]Action{ArmGrace, AwaitDrained}", To: "[]Action{ArmGrace}"},
		"SIGTERM lets a reviving child go on":           {File: table, In: reviving, From: "Draining", To: "Reviving"},
		"the standby stays closed after a crash":        {File: table, In: crash, From: "[]Action{OpenStandby, WaitBackoff}", To: "[]Action{WaitBackoff}"},
		"a crash is followed by no restart":             {File: table, In: crash, From: "[]Action{OpenStandby, WaitBackoff}", To: "[]Action{OpenStandby}"},
		"a child that starts late does not drain":       {File: table, In: drainReady, From: "[]Action{CloseStandby, DrainChild}", To: "[]Action{CloseStandby}"},
		"the standby stays open while a child drains":   {File: table, In: drainReady, From: "[]Action{CloseStandby, DrainChild}", To: "[]Action{DrainChild}"},
		"a draining child comes back to serving":        {File: table, In: drainReady, From: "Draining", To: "Serving"},
		"a crash while draining leaves the port closed": {File: table, In: drainEnded, From: "[]Action{OpenStandby, WaitBackoff}", To: "[]Action{WaitBackoff}"},
		"a crash while draining ends the drain":         {File: table, In: drainEnded, From: "DrainDown", To: "Stopped"},
		"a drain that cannot go on succeeds":            {File: table, In: drainLost, From: "ExitFailed", To: "ExitOK"},
		"a drained child is left alive":                 {File: table, In: drained, From: "[]Action{KillChild}", To: "[]Action{}"},
		"no child is started for the last calls":        {File: table, In: downElapsed, From: "[]Action{StartChild}", To: "[]Action{}"},
		"the standby outlives the end":                  {File: table, In: downDrained, From: "[]Action{CloseStandby, ExitOK}", To: "[]Action{ExitOK}"},
		"a drain without a child fails":                 {File: table, In: downDrained, From: "ExitOK", To: "ExitFailed"},
		"a killed child is a failure":                   {File: table, In: stopEnded, From: "ExitOK", To: "ExitFailed"},

		"a child that served for seconds is followed by a pause": {File: "backoff.go", Tests: "TestPausesDouble|TestGivingUp",
			In: "reset: time.Second", From: "time.Second", To: "time.Minute"},
		"a ready event of a dead child counts": {File: "supervisor.go", Tests: "TestAReadyEventOfADeadChildIsIgnored",
			From: "in.event == ChildReady && in.child != s.running()", To: "false"},
	})
}
