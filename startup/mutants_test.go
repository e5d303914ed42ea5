package startup

import (
	"testing"

	"outrider.dev/test/mutants"
)

func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestCheck|TestDecide", map[string]mutants.Mutant{
		// edge.go
		"what completed and then failed counts as started": {File: "edge.go", From: `s.Completed && !s.Failed`, To: `s.Completed`},
		"what completed does not count as started":         {File: "edge.go", From: `s.Completed && !s.Failed`, To: `false`},
		"what runs does not count as started":              {File: "edge.go", From: `s.Running || s.Completed && !s.Failed`, To: `s.Completed`},
		"a restart keeps the health":                       {File: "edge.go", From: `*s = Status{Ran: true, Running: true, Completed: s.Completed}`, To: `*s = Status{Ran: true, Running: true, Completed: s.Completed, Healthy: s.Healthy}`},
		"a restart keeps the failure":                      {File: "edge.go", From: `*s = Status{Ran: true, Running: true, Completed: s.Completed}`, To: `*s = Status{Ran: true, Running: true, Completed: s.Completed, Failed: s.Failed}`},
		"a restart forgets that it completed":              {File: "edge.go", From: `s.Completed`, To: `false`, In: `*s = Status{Ran: true, Running: true, Completed: s.Completed}`},
		"unhealthy is ignored":                             {File: "edge.go", From: `s.Healthy = false`, To: ``},
		"completion leaves it healthy":                     {File: "edge.go", From: `s.Running, s.Healthy, s.Completed, s.Failed = false, false, true, false`, To: `s.Running, s.Completed, s.Failed = false, true, false`},
		"completion leaves it running":                     {File: "edge.go", From: `s.Running, s.Healthy, s.Completed, s.Failed = false, false, true, false`, To: `s.Healthy, s.Completed, s.Failed = false, true, false`},
		"completion leaves it failed":                      {File: "edge.go", From: `s.Running, s.Healthy, s.Completed, s.Failed = false, false, true, false`, To: `s.Running, s.Healthy, s.Completed = false, false, true`},
		"failure leaves it healthy":                        {File: "edge.go", From: `s.Running, s.Healthy, s.Failed = false, false, true`, To: `s.Running, s.Failed = false, true`},
		"failure leaves it running":                        {File: "edge.go", From: `s.Running, s.Healthy, s.Failed = false, false, true`, To: `s.Healthy, s.Failed = false, true`},
		"failure is not noted":                             {File: "edge.go", From: `s.Running, s.Healthy, s.Failed = false, false, true`, To: `s.Running, s.Healthy = false, false`},
		"the timeout is over one instant late":             {File: "edge.go", From: `waited >= e.Timeout`, To: `waited > e.Timeout`},
		"no timeout is over at once":                       {File: "edge.go", From: `e.Timeout > 0`, To: `true`},
		"every edge is optional":                           {File: "edge.go", From: `e.Optional && (from.Failed || from.Absent)`, To: `from.Failed || from.Absent`},
		"no edge is optional":                              {File: "edge.go", From: `e.Optional && (from.Failed || from.Absent)`, To: `false`},
		"an optional failure blocks":                       {File: "edge.go", From: `from.Failed || from.Absent`, To: `from.Absent`},
		"an optional absence blocks":                       {File: "edge.go", From: `from.Failed || from.Absent`, To: `from.Failed`},
		"an optional edge never blocks":                    {File: "edge.go", From: `from.Failed || from.Absent`, To: `true`},
		"every timeout lets To run":                        {File: "edge.go", From: `e.OnTimeout == Continue`, To: `true`},
		"no timeout lets To run":                           {File: "edge.go", From: `e.OnTimeout == Continue`, To: `false`},
		"what gave up may run":                             {File: "edge.go", From: `return GivenUp`, To: `return Expired`},
		"what is blocked may run":                          {File: "edge.go", From: `return Blocked`, To: `return Satisfied`},

		// check.go
		"the timeline is not sorted":                  {File: "check.go", From: `t = t.Sorted()`, To: ``},
		"stars are not expanded":                      {File: "check.go", From: `p.Expand().Edges`, To: `p.Edges`},
		"a deletion is ignored":                       {File: "check.go", From: `c.deleted = true`, To: ``},
		"From lives on in a new sandbox":              {File: "check.go", From: `c.from, c.to, c.since = Status{}, Status{}, ev.At`, To: `c.to, c.since = Status{}, ev.At`},
		"To lives on in a new sandbox":                {File: "check.go", From: `c.from, c.to, c.since = Status{}, Status{}, ev.At`, To: `c.from, c.since = Status{}, ev.At`},
		"a wait goes on over a new sandbox":           {File: "check.go", From: `c.from, c.to, c.since = Status{}, Status{}, ev.At`, To: `c.from, c.to = Status{}, Status{}`},
		"a wait begins with the pod":                  {File: "check.go", From: `c.since = ev.At`, To: ``},
		"a wait begins with the end only":             {File: "check.go", From: `ev.What == IsWaiting`, To: `false`},
		"a wait begins at the gate only":              {File: "check.go", From: `ev.What.ends()`, In: "case ev.What == IsWaiting, ev.What.ends():", To: `false`},
		"the incarnation is not noted":                {File: "check.go", From: `c.incarnation = ev.Incarnation`, To: ``},
		"starts are not judged":                       {File: "check.go", From: `c.judgeStart(ev, later)`, To: ``},
		"To's events are not noted":                   {File: "check.go", From: `c.to.Observe(ev)`, To: ``},
		"From is absent before its first event":       {File: "check.go", From: `!later.mentions(c.edge.From)`, To: `true`},
		"From is absent if it is not mentioned again": {File: "check.go", From: `from == Status{}`, To: `true`},
		"From is never absent":                        {File: "check.go", From: `from.Absent = from == Status{} && !later.mentions(c.edge.From)`, To: ``},
		"a start too early is too early for ever":     {File: "check.go", From: `ev.At - at`, To: `Forever`},
		"any container's event satisfies the wait":    {File: "check.go", From: `ev.Container == c.edge.From`, In: "	if ev.Container == c.edge.From {\n			from.Observe(ev)", To: `true`},
		"a crash is an end out of order":              {File: "check.go", From: `c.deleted`, In: `ev.What.ends() && c.deleted && c.to.Running`, To: `true`},
		"To needs not run for an end out of order":    {File: "check.go", From: `c.to.Running`, In: `ev.What.ends() && c.deleted && c.to.Running`, To: `true`},
		"any event of From ends it":                   {File: "check.go", From: `ev.What.ends()`, In: `ev.What.ends() && c.deleted && c.to.Running`, To: `true`},
		"a first start is a restart":                  {File: "check.go", From: `c.from.Ran`, To: `true`},
		"any event is a restart":                      {File: "check.go", From: `ev.What == IsStarted`, In: `again := ev.What == IsStarted && c.from.Ran`, To: `true`},
		"From's events are not noted":                 {File: "check.go", From: `c.from.Observe(ev)`, To: ``},
		"a dead To has to follow":                     {File: "check.go", From: `c.to.Running`, In: `again && c.to.Running && c.edge.OnRestart != Ignore`, To: `true`},
		"every restart has to be followed":            {File: "check.go", From: `c.edge.OnRestart != Ignore`, To: `true`},
		"what completed has to outlive To":            {File: "check.go", From: `c.edge.After == Completed`, To: `false`},
		"any event of To ends it":                     {File: "check.go", From: `next.What.ends()`, In: `next.Container == c.edge.To && next.What.ends()`, To: `true`},
		"any container's end ends To":                 {File: "check.go", From: `next.Container == c.edge.To`, In: `next.Container == c.edge.To && next.What.ends()`, To: `true`},
		"the length is not that to To's end":          {File: "check.go", From: `next.At - ev.At`, To: `next.At`},
		"two ends at one instant are out of order":    {File: "check.go", From: `outlived > 0`, To: `outlived >= 0`},
		"no To outlives":                              {File: "check.go", From: `c.judgeEnd(ev, later)`, To: ``},
		"To has to follow after a deletion":           {File: "check.go", From: `next.What == PodDeleted`, To: `false`},
		"any container's event follows a restart":     {File: "check.go", From: `next.Container != c.edge.To`, To: `false`},
		"an end of To does not follow a restart":      {File: "check.go", From: `next.What.ends()`, In: "case next.What.ends(), next.What", To: `false`},
		"a notification does not follow a restart":    {File: "check.go", From: `next.What == IsNotified && c.edge.OnRestart == Notify`, To: `false`},
		"a notification is enough for a restart":      {File: "check.go", From: `c.edge.OnRestart == Notify`, To: `true`},
	})
}
