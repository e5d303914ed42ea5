package verify

import (
	"testing"

	"outrider.dev/test/mutants"
)

func TestEveryMutantIsNoticed(t *testing.T) {
	const replayed = "a step that mayViolate reports too often costs a replay, after which Check decides"
	mutants.Run(t, "TestNoViolationIsMissed", map[string]mutants.Mutant{
		"only the first edge":                   {File: "judge.go", From: `return true`, In: "if s.mayViolateEdge(n, ev, i, e) {\n				return true\n			}", To: `return e == s.edges[0] && len(s.edges) == 1`},
		"no edge":                               {File: "judge.go", From: `s.mayViolateEdge(n, ev, i, e)`, To: `false`},
		"no restart":                            {File: "judge.go", From: `s.question.Promise == Starts && len(happened) > 0 && s.notFollowed(n)`, To: `false`, Tests: "TestExplore"},
		"restarts when the pod stops too":       {File: "judge.go", From: `s.question.Promise == Starts`, To: `true`, Survives: replayed},
		"restarts at every step":                {File: "judge.go", From: `len(happened) > 0`, To: `true`, Survives: replayed},
		"a stop is judged as a start":           {File: "judge.go", From: `s.question.Promise == Stops`, In: "case s.question.Promise == Stops:", To: `false`},
		"a start is judged as a stop":           {File: "judge.go", From: `s.question.Promise == Stops`, In: "case s.question.Promise == Stops:", To: `true`},
		"only a failure ends":                   {File: "judge.go", From: `ev.What == startup.IsCompleted || ev.What == startup.HasFailed`, To: `ev.What == startup.HasFailed`},
		"only completion ends":                  {File: "judge.go", From: `ev.What == startup.IsCompleted || ev.What == startup.HasFailed`, To: `ev.What == startup.IsCompleted`},
		"any event ends":                        {File: "judge.go", From: `ended`, In: `return ended && ev.Container`, To: `true`, Survives: replayed},
		"the end of any container":              {File: "judge.go", From: `ev.Container == e.To`, In: `return ended && ev.Container == e.To`, To: `true`, Survives: replayed},
		"the end of From, not of To":            {File: "judge.go", From: `ev.Container == e.To`, In: `return ended && ev.Container == e.To`, To: `ev.Container == e.From`},
		"an end before the deletion":            {File: "reduce.go", From: `!n.gates.Deleted()`, In: `Stops || !n.gates.Deleted()`, To: `false`, Survives: replayed},
		"an end while From runs":                {File: "judge.go", From: `n.outlived[i] > 0`, In: `n.outlived != nil && n.outlived[i] > 0`, To: `true`, Survives: replayed},
		"an end at the same instant":            {File: "judge.go", From: `ev.At >= n.outlived[i]`, To: `true`, Survives: replayed},
		"no end of From":                        {File: "reduce.go", From: `!n.gates.Runs(e.To)`, To: `true`},
		"a start before its condition":          {File: "judge.go", From: `!n.gates.Reached(e)`, To: `false`},
		"a start after its condition":           {File: "judge.go", From: `!n.gates.Reached(e)`, To: `true`, Survives: replayed},
		"an optional From that appears":         {File: "judge.go", From: `e.Optional`, To: `false`},
		"an optional From while To runs":        {File: "judge.go", From: `return true`, In: "return true // when To began, From seemed to be absent", To: `return n.gates.Runs(e.To)`},
		"a required From that appears":          {File: "judge.go", From: `e.Optional`, To: `true`, Survives: replayed},
		"a gate that enforces the restart":      {File: "judge.go", From: `!o.Enforced`, To: `true`, Survives: replayed},
		"a restart without any gate":            {File: "judge.go", From: `!o.Enforced`, To: `o.Enforced`, Tests: "TestExplore"},
		"the stop order when the pod runs":      {File: "judge.go", From: `(v.How == startup.OutlivedDependency) != (s.question.Promise == Stops)`, To: `false`, Tests: "TestDecided"},
		"an end before To's end":                {File: "judge.go", From: `v.By == startup.Forever`, To: `false`, Tests: "TestDecided"},
		"a restart that a gate will follow":     {File: "judge.go", From: `v.Edge.By == startup.Gate`, To: `false`, Tests: "TestExplore"},
		"time passes in replays":                {File: "search.go", From: `s.ended(ctx)`, In: `before/everySteps && s.ended(ctx)`, To: `false`, Tests: "TestTimeIsCheckedBetweenReplays"},
		"a completed container may outlive":     {File: "reduce.go", From: `e.After == startup.Completed`, To: `false`, Survives: replayed},
		"the instant of a deletion is all one":  {File: "reduce.go", From: `s.deletionIsTimed(n)`, To: `false`, Tests: "TestReducedSearchAgrees"},
		"every container is as good as started": {File: "reduce.go", From: `v.Starting && !n.faultsLeft()`, To: `true`, Tests: "TestReducedSearchAgrees"},
		"health never matters":                  {File: "moves.go", From: `!c.healthMatters(&c.node, name)`, To: `!c.full`, Tests: "TestReducedSearchAgrees"},
		"a preStop outlasts the grace":          {File: "moves.go", From: `!c.outlastsGrace(at)`, To: `true`, Tests: "TestExplore"},
		"a period without an order has an end":  {File: "moves.go", From: `!q.Pod.OrdersStops()`, To: `false`, Tests: "TestExplore"},
		"a sleep never returns":                 {File: "moves.go", From: `sleeps(a) && c.now >= a.At+a.Timeout`, To: `false`, Tests: "TestExplore"},
		"a restart that nothing follows":        {File: "judge.go", From: `v.Edge.By == startup.Gate`, To: `true`, Tests: "TestExplore"},
	})
}
