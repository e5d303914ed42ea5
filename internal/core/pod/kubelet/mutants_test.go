package kubelet_test

import (
	"testing"

	"outrider.dev/test/mutants"
)

// The traces detect most mutants. The other mutants name the test that detects them, for one of two reasons.
// Either a trace would have to be minutes long: the growth of the back-off, its expiry, the check of a long
// back-off. Or no trace would differ: the replay moves a retry to its time in the trace, a retry never comes
// before the end of an image's back-off, and the phase already ends a pod in which an init container has failed
// for good.
func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestConformance", map[string]mutants.Mutant{
		"liveness restarts with Never too":            {File: "decide.go", From: `s.spec.policy(i) != Never`, To: `true`},
		"OnFailure restarts after success":            {File: "decide.go", From: `s.c[i].life.code != 0`, To: `true`},
		"a sidecar keeps its pod alive":               {File: "decide.go", From: `kept == 0 && len(starts) == 0`, To: `kept == 0 && len(starts) == 0 && !s.spec.hasSidecar()`},
		"a second sandbox with Never":                 {File: "decide.go", From: `again && s.spec.restart == Never && anySeen(s.c)`, To: `false`},
		"a new sandbox starts what succeeded":         {File: "decide.go", From: `s.spec.policy(i) != OnFailure || !s.c[i].life.succeeded()`, To: `true`},
		"a failed liveness probe is ignored":          {File: "probe.go", From: `p.of[livenessProbe].result == failure`, To: `false`},
		"a failed startup probe is ignored":           {File: "probe.go", From: `p.of[startupProbe].result == failure`, To: `false`},
		"a sidecar's startup probe holds nothing":     {File: "init.go", From: `s.spec.hasProbe(i, startupProbe) && c.probes.of[startupProbe].result != success`, To: `false`},
		"a sidecar's startup probe kills nothing":     {File: "init.go", From: `c.probes.failed() == Startup`, To: `false`},
		"a sidecar's liveness probe kills nothing":    {File: "init.go", From: `c.probes.failed() == Liveness`, To: `false`},
		"a failed init container is tried with Never": {File: "init.go", From: `s.spec.policy(i) == Never`, To: `false`, Tests: "TestDecideAsTheRealKubelet"},
		"one init container is enough":                {File: "init.go", From: `i == s.spec.inits-1`, To: `true`},
		"a running app counts for nothing":            {File: "init.go", From: `s.plainRuns()`, To: `false`},
		"a failed hook kills after two seconds":       {File: "start.go", From: `s.spec.grace`, To: `minimumGrace`},
		"the back-off does not grow":                  {File: "backoff.go", From: `min(2*b.delay, maxDelay)`, To: `b.delay`},
		"the first back-off is five seconds":          {File: "backoff.go", From: `firstDelay`, In: "delay = firstDelay", To: `firstDelay / 2`},
		"the back-off has no limit":                   {File: "backoff.go", From: `min(2*b.delay, maxDelay)`, To: `2 * b.delay`, Tests: "TestBackOff"},
		"the back-off is never forgotten":             {File: "backoff.go", From: `!b.kept && ended-b.since > forgetting`, To: `false`, Tests: "TestBackOff"},
		"a long back-off is looked at when it ends":   {File: "start.go", From: `min(until, s.now+resync)`, To: `until`, Tests: "TestALongBackOff"},
		"1.36 waits after a back-off":                 {File: "start.go", From: `s.spec.version.ExactRetry`, To: `false`},
		"1.34 is back when a back-off ends":           {File: "start.go", From: `s.spec.version.ExactRetry`, To: `true`, Tests: "TestRules"},
		"a missing image has no back-off":             {File: "start.go", From: `t.pulls.next(now, now)`, To: `backOff{}`, Tests: "TestImagePullBackOff"},
		"a missing image with Never has one":          {File: "start.go", From: `!neverPull`, To: `true`},
		"liveness has no grace period of its own":     {File: "stop.go", From: `c.Liveness.Grace`, To: `0`},
		"startup has no grace period of its own":      {File: "stop.go", From: `c.Startup.Grace`, To: `0`},
		"parts of seconds are spent":                  {File: "stop.go", From: `(now - k.since).Truncate(time.Second)`, To: `now - k.since`},
		"a preStop costs nothing":                     {File: "stop.go", From: `(now - k.since).Truncate(time.Second)`, To: `0`},
		"what comes late has nothing":                 {File: "stop.go", From: `max(k.left, minimumGrace)`, To: `k.left`},
		"what comes late has five seconds":            {File: "stop.go", From: `max(k.left, minimumGrace)`, To: `max(k.left, 5*time.Second)`},
		"sidecars stop with the apps":                 {File: "stop.go", From: `s.spec.hasSidecar()`, To: `false`},
		"sidecars stop in any order":                  {File: "stop.go", From: `s.spec.kind(j) == plain || s.spec.kind(j) == sidecar && j > i`, To: `s.spec.kind(j) == plain`},
		"sidecars wait for init containers":           {File: "stop.go", From: `s.spec.kind(j) == plain || s.spec.kind(j) == sidecar && j > i`, To: `s.spec.kind(j) != sidecar || j > i`},
		"preStop hooks are not run":                   {File: "stop.go", From: `s.spec.containers[i].PreStop == NoHandler || grace <= 0`, To: `true`},
		"a failed pass is repeated later":             {File: "schedule.go", From: `earlier(q.retry, t)`, To: `earlier(q.retry, t+Retry)`},
		"a sidecar that fails ends the pass":          {File: "pass.go", From: `t.kind == startInit && s.spec.kind(t.i) == initial`, To: `t.kind == startInit`},
		"a deletion interrupts a pass":                {File: "schedule.go", From: `isDue(q.requested(), now)`, To: `false`},
		"a pod deleted while it starts is forgotten":  {File: "pass.go", From: `s.schedule.wakeAt(s.now)`, In: "case bound:\n		s.schedule.wakeAt(s.now)", To: ``, Tests: "TestDeletion"},
		"a deletion has the pod's grace period":       {File: "ending.go", From: `s.ending.deleted()`, In: `if s.ending.deleted() {`, To: `false`, Tests: "TestDeletion"},
		"a deletion takes another one's grace period": {File: "ending.go", From: `again && grace <= 0`, To: `false`, Tests: "TestDeletion"},
		"only the first deletion counts":              {File: "ending.go", From: `again && grace <= 0`, To: `again`, Tests: "TestDeletion"},
		"1.34 looks again at once":                    {File: "pass.go", From: `v.FreshAtOnce && s.pass.acted && s.schedule.retry == never`, To: `s.pass.acted && s.schedule.retry == never`},
		"1.36 looks again at once after a failure":    {File: "pass.go", From: `v.FreshAtOnce && s.pass.acted && s.schedule.retry == never`, To: `v.FreshAtOnce && s.pass.acted`},
		"1.36 looks again at the next relist":         {File: "pass.go", From: `v.FreshAtOnce && s.pass.acted && s.schedule.retry == never`, To: `false`},
		"1.34 has policies of containers":             {File: "pod.go", From: `s.version.ContainerRestart`, To: `true`},
		"1.36 has no policies of containers":          {File: "pod.go", From: `s.version.ContainerRestart`, To: `false`},
		"there are no sidecars":                       {File: "pod.go", From: `s.containers[i].Restart == Always && s.version.Sidecars`, To: `false`},
		"one failure is enough":                       {File: "probe.go", From: `p.row == threshold`, To: `true`},
		"all probes run from the start":               {File: "probe.go", From: `p.started != (w == startupProbe)`, To: `true`},
		"a failed liveness probe goes on":             {File: "probe.go", From: `w == startupProbe || w == livenessProbe && r == failure`, To: `w == startupProbe`},
		"an answer is waited for":                     {File: "probe.go", From: `now+timeout`, To: `now + timeout + 2*time.Second`},
		"readiness counts from the first pass":        {File: "probe.go", From: `p.due != never`, In: `case p.due != never:`, To: `false`},
		"a readiness probe starts in success":         {File: "probe.go", From: `first[w]`, To: `success`},
		"readiness does not count":                    {File: "probe.go", From: `p.of[readinessProbe].result == success`, To: `true`},
		"1.34 keeps Initialized":                      {File: "status.go", From: `s.spec.version.StaysInitialized`, To: `true`},
		"1.36 takes Initialized back":                 {File: "status.go", From: `s.spec.version.StaysInitialized`, To: `false`},
		"1.34 keeps a sidecar as started":             {File: "status.go", From: `s.spec.version.KeepsStarted`, To: `true`},
		"1.36 does not":                               {File: "status.go", From: `s.spec.version.KeepsStarted`, To: `false`},
		"the end is published before it":              {File: "status.go", From: `end.final != "" && end.stage == stopped`, To: `end.final != ""`},
		"a sidecar's exit counts":                     {File: "status.go", From: `c.life.run != exited && !started`, To: `!started`},
		"it waits for no relist":                      {File: "version.go", From: `(t/v.Relist + 1) * v.Relist`, To: `t`},
	})
}
