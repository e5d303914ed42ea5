package kubelet_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A mutant is the model with one rule changed: somewhere in a file stands an expression,
// and another one in its place. A test must see the difference.
type mutant struct {
	file, from, to string
	by             string // the test; empty is TestConformance, that is, some trace
}

// mutants are changes of rules, most of which a trace shows. Others want minutes of trace (how
// far the back-off grows, when it is forgotten, who looks at a long one) or are told by none:
// the replay puts a retry to where the trace has it, that comes no sooner than the end of an
// image's back-off, and where an init container failed for good, the phase ends the pod.
var mutants = map[string]mutant{
	"liveness restarts with Never too":            {file: "decide.go", from: `s.spec.policy(i) != Never`, to: `true`},
	"OnFailure restarts after success":            {file: "decide.go", from: `s.c[i].code != 0`, to: `true`},
	"a sidecar keeps its pod alive":               {file: "decide.go", from: `kept == 0 && len(starts) == 0`, to: `kept == 0 && len(starts) == 0 && !s.spec.hasSidecar()`},
	"a second sandbox with Never":                 {file: "decide.go", from: `again && s.spec.restart == Never && s.hasStatus()`, to: `false`},
	"a new sandbox starts what succeeded":         {file: "decide.go", from: `s.spec.policy(i) != OnFailure || !succeeded`, to: `true`},
	"a failed liveness probe is looked over":      {file: "decide.go", from: `s.c[i].probes[livenessProbe].result == failure`, to: `false`},
	"a failed startup probe is looked over":       {file: "decide.go", from: `s.c[i].probes[startupProbe].result == failure`, to: `false`},
	"a sidecar's startup probe holds nothing":     {file: "init.go", from: `s.hasProbe(i, startupProbe) && c.probes[startupProbe].result != success`, to: `false`},
	"a sidecar's startup probe kills nothing":     {file: "init.go", from: `s.failedProbe(i) == Startup`, to: `false`},
	"a sidecar's liveness probe kills nothing":    {file: "init.go", from: `s.failedProbe(i) == Liveness`, to: `false`},
	"a failed init container is tried with Never": {file: "init.go", from: `s.spec.policy(i) == Never`, to: `false`, by: "TestDecideAsTheRealKubelet"},
	"one init container is enough":                {file: "init.go", from: `i == s.spec.inits-1`, to: `true`},
	"a running app counts for nothing":            {file: "init.go", from: `s.plainRuns()`, to: `false`},
	"a failed hook kills after two seconds":       {file: "start.go", from: `s.spec.grace`, to: `minimumGrace`},
	"the back-off does not grow":                  {file: "start.go", from: `min(2*b.delay, maxDelay)`, to: `b.delay`},
	"the first back-off is five seconds":          {file: "start.go", from: `backOff{delay: firstDelay, since: now}`, to: `backOff{delay: firstDelay / 2, since: now}`},
	"the back-off has no limit":                   {file: "start.go", from: `min(2*b.delay, maxDelay)`, to: `2 * b.delay`, by: "TestBackOff"},
	"the back-off is never forgotten":             {file: "start.go", from: `b.delay == 0 || ended-b.since > forgetting`, to: `b.delay == 0`, by: "TestBackOff"},
	"a long back-off is looked at when it ends":   {file: "start.go", from: `min(until, s.now+resync)`, to: `until`, by: "TestALongBackOff"},
	"1.36 waits after a back-off":                 {file: "start.go", from: `s.spec.version.ExactRetry`, to: `false`},
	"1.34 is back when a back-off ends":           {file: "start.go", from: `s.spec.version.ExactRetry`, to: `true`, by: "TestRules"},
	"a missing image has no back-off":             {file: "start.go", from: `c.pulls.next(s.now, s.now)`, to: `backOff{}`, by: "TestImagePullBackOff"},
	"a missing image with Never has one":          {file: "start.go", from: `!s.spec.containers[i].NeverPull`, to: `true`},
	"liveness has no grace period of its own":     {file: "stop.go", from: `c.Liveness.Grace`, to: `0`},
	"startup has no grace period of its own":      {file: "stop.go", from: `c.Startup.Grace`, to: `0`},
	"parts of seconds are spent":                  {file: "stop.go", from: `(s.now - k.since).Truncate(time.Second)`, to: `s.now - k.since`},
	"a preStop costs nothing":                     {file: "stop.go", from: `(s.now - k.since).Truncate(time.Second)`, to: `0`},
	"what comes late has nothing":                 {file: "stop.go", from: `max(k.left, minimumGrace)`, to: `k.left`},
	"what comes late has five seconds":            {file: "stop.go", from: `max(k.left, minimumGrace)`, to: `max(k.left, 5*time.Second)`},
	"sidecars stop with the apps":                 {file: "stop.go", from: `s.spec.hasSidecar()`, to: `false`},
	"sidecars stop in any order":                  {file: "stop.go", from: `s.spec.kind(j) == plain || s.spec.kind(j) == sidecar && j > i`, to: `s.spec.kind(j) == plain`},
	"sidecars wait for init containers":           {file: "stop.go", from: `s.spec.kind(j) == plain || s.spec.kind(j) == sidecar && j > i`, to: `s.spec.kind(j) != sidecar || j > i`},
	"preStop hooks are not run":                   {file: "stop.go", from: `s.spec.containers[i].PreStop == NoHandler || grace <= 0`, to: `true`},
	"a failed pass is repeated later":             {file: "worker.go", from: `earlier(s.worker.retry, retry)`, to: `earlier(s.worker.retry, retry+Retry)`},
	"a sidecar that fails ends the pass":          {file: "worker.go", from: `t.kind == startInit && s.spec.kind(t.i) == initial`, to: `t.kind == startInit`},
	"a deletion interrupts a pass":                {file: "worker.go", from: `s.worker.mode == idle && s.due(asked)`, to: `false`},
	"1.34 looks again at once":                    {file: "worker.go", from: `v.FreshAtOnce && s.worker.acted && s.worker.retry == never`, to: `s.worker.acted && s.worker.retry == never`},
	"1.36 looks again at once after a failure":    {file: "worker.go", from: `v.FreshAtOnce && s.worker.acted && s.worker.retry == never`, to: `v.FreshAtOnce && s.worker.acted`},
	"1.36 looks again at the next relist":         {file: "worker.go", from: `v.FreshAtOnce && s.worker.acted && s.worker.retry == never`, to: `false`},
	"1.34 has policies of containers":             {file: "pod.go", from: `s.version.ContainerRestart`, to: `true`},
	"1.36 has no policies of containers":          {file: "pod.go", from: `s.version.ContainerRestart`, to: `false`},
	"there are no sidecars":                       {file: "pod.go", from: `s.containers[i].Restart == Always && s.version.Sidecars`, to: `false`},
	"one failure is enough":                       {file: "probe.go", from: `p.row == threshold`, to: `true`},
	"all probes are asked from the start":         {file: "probe.go", from: `c.started != (w == startupProbe)`, to: `true`},
	"a failed liveness probe is asked on":         {file: "probe.go", from: `w == startupProbe || w == livenessProbe && r == failure`, to: `w == startupProbe`},
	"an answer is waited for":                     {file: "probe.go", from: `s.now+spec.Timeout`, to: `s.now + spec.Timeout + 2*time.Second`},
	"readiness counts from the first pass":        {file: "probe.go", from: `p.due != never`, to: `false`},
	"a readiness probe starts in success":         {file: "probe.go", from: `first[w]`, to: `success`},
	"readiness does not count":                    {file: "status.go", from: `c.probes[readinessProbe].result == success`, to: `true`},
	"1.34 keeps Initialized":                      {file: "status.go", from: `s.spec.version.StaysInitialized`, to: `true`},
	"1.36 takes Initialized back":                 {file: "status.go", from: `s.spec.version.StaysInitialized`, to: `false`},
	"1.34 knows that a sidecar is started":        {file: "status.go", from: `s.spec.version.KeepsStarted`, to: `true`},
	"1.36 does not":                               {file: "status.go", from: `s.spec.version.KeepsStarted`, to: `false`},
	"the end is told before it":                   {file: "status.go", from: `s.final != "" && s.ending == stopped`, to: `s.final != ""`},
	"a sidecar's exit counts":                     {file: "status.go", from: `c.run != exited && !started`, to: `!started`},
	"it waits for no relist":                      {file: "version.go", from: `(t/v.Relist + 1) * v.Relist`, to: `t`},
}

// Whoever changes one rule of the model has a test fail.
func TestEveryMutantIsNoticed(t *testing.T) {
	binary := buildMutants(t)
	if out, err := play(binary, "", "TestConformance|TestBackOff"); err != nil {
		t.Fatalf("the model itself: %v\n%s", err, out)
	}
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			by := m.by
			if by == "" {
				by = "TestConformance"
			}
			out, err := play(binary, name, by)
			if err == nil || !strings.Contains(out, "--- FAIL: "+by) || strings.Contains(out, "panic:") {
				t.Errorf("%s: with %s instead of %s, %s does not fail: %v\n%s", m.file, m.to, m.from, by, err, out)
			}
		})
	}
}

// mutantVariable names the mutant that a test binary is to be.
const mutantVariable = "KUBELET_MUTANT"

func play(binary, name, tests string) (string, error) {
	cmd := exec.Command(binary, "-test.run", "^("+tests+")$", "-test.failfast", "-test.timeout", "10m")
	cmd.Env = append(os.Environ(), mutantVariable+"="+name)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// buildMutants builds this package's tests with all mutants in one binary: each expression
// becomes a choice between itself and the one in its place.
func buildMutants(t *testing.T) string {
	t.Helper()
	sources := map[string]string{"mutant.go": `package kubelet

import "os"

var mutant = os.Getenv("` + mutantVariable + `")

func either[T any](name string, is, instead T) T {
	if mutant == name {
		return instead
	}
	return is
}
`}
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		m := mutants[name]
		text := sources[m.file]
		if text == "" {
			b, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if n := strings.Count(text, m.from); n != 1 {
			t.Fatalf("%s: %s stands there %d times, want once", m.file, m.from, n)
		}
		sources[m.file] = strings.Replace(text, m.from, fmt.Sprintf("either(%q, %s, %s)", name, m.from, m.to), 1)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for file, text := range sources {
		copied := filepath.Join(dir, file)
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(here, file)] = copied
	}
	plan, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutants.test")
	if err := os.WriteFile(list, plan, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", list, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the mutants: %v\n%s", err, out)
	}
	return binary
}
