package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/startup"
	"outrider.dev/test/ns"
)

// agreeRuns is the environment variable that sets the size of the test, as PODSxRUNS, for a long run.
const agreeRuns = "OUTRIDER_AGREE_RUNS"

// If verify says that the plan of a pod holds, real runs of the pod keep it, at the start and at the stop. The
// pods are random. The test checks only the order of the events that run prints.
func TestRunsAgreeWithVerify(t *testing.T) {
	ns.RequireRoot(t)
	pods, runs := 2, 3
	if text := os.Getenv(agreeRuns); text != "" {
		if n, err := fmt.Sscanf(text, "%dx%d", &pods, &runs); n != 2 || err != nil || pods < 1 || runs < 1 {
			t.Fatalf("%s=%q: must be PODSxRUNS, like 10x20", agreeRuns, text)
		}
	}
	dir := agentDirectory(t)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	edges, both := 0, 0
	var began atomic.Int64
	var all sync.WaitGroup
	turns := make(chan struct{}, 6) // number of pods that run at the same time; a run mostly waits
	for seed := range uint64(pods) {
		rng := rand.New(rand.NewPCG(seed, 17))
		text, crashes := realPod(rng)
		file := filepath.Join(dir, fmt.Sprintf("pod%d.yaml", seed))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		plan, starts, stops := verified(t, file, crashes)
		if !starts {
			t.Fatalf("seed %d: verify says that a start is not kept, so nothing is compared\n%s", seed, text)
		}
		edges += len(plan.Edges)
		if stops {
			both++
		}
		for i := range runs {
			lasts := 4 * time.Second // enough for a whole run; the other runs are ended at a random moment
			if i > 0 {
				lasts = time.Duration(300+rng.IntN(4000)) * time.Millisecond
			}
			all.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				ran, err := keeps(file, plan, lasts, stops)
				if began.Add(int64(ran)); err != nil {
					t.Errorf("seed %d, run %d of %s: %v\n%s", seed, i, lasts, err, text)
				}
			})
		}
	}
	all.Wait()
	t.Logf("%d pods with %d edges, of which %d also hold when the pod stops; %d real runs of each, in which commands began %d times", pods, edges, both, runs, began.Load())
}

// realPod returns a random pod of harmless commands, with timeouts that even a slow machine does not reach. It also
// returns the number of containers that crash after their first start.
func realPod(rng *rand.Rand) (text string, crashes int) {
	of := func(words ...string) string { return words[rng.IntN(len(words))] }
	pause := func() string { return fmt.Sprintf("sleep 0.%d; ", rng.IntN(8)) }
	const idle = "while :; do sleep 0.1; done"
	serves := "trap 'exit 0' TERM; " + pause() + "touch /tmp/up; " + idle
	first := ""
	way := of("gate", "gate", "native", "hold")
	if way == "gate" && rng.IntN(2) == 0 {
		first, crashes = "[ -f /once/app ] || { touch /once/app; "+pause()+"exit 1; }; ", 1
	}
	cache := fmt.Sprintf("  - name: cache\n    command: [sh, -c, %q]\n    volumeMounts: [{name: once, mountPath: /once}]\n", serves)
	switch {
	case way != "gate":
		cache += "    lifecycle: {postStart: {exec: {command: [sh, -c, \"until test -f /tmp/up; do sleep 0.05; done\"]}}}\n"
	default:
		cache += "    " + of("readinessProbe", "startupProbe") + ": {exec: {command: [test, -f, /tmp/up]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 600}\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: shop\n  labels: {outrider.dev/inject: \"true\"}\n  annotations:\n    outrider.dev/proxy: none\n")
	if way == "gate" {
		fmt.Fprintf(&b, "    outrider.dev/start: gate\n    outrider.dev/depends-on.app: %s\n", of("cache", "cache=started", "\"cache, migrate=completed\""))
	}
	fmt.Fprintf(&b, "spec:\n  terminationGracePeriodSeconds: 600\n  volumes: [{name: once, emptyDir: {}}]\n  initContainers:\n  - {name: migrate, command: [sh, -c, %q]}\n", pause()+"true")
	app := fmt.Sprintf("  - name: app\n    command: [sh, -c, %q]\n    volumeMounts: [{name: once, mountPath: /once}]\n", first+"trap '"+pause()+"exit 0' TERM; "+idle)
	if way == "native" {
		return b.String() + strings.Replace(cache, "    volumeMounts", "    restartPolicy: Always\n    volumeMounts", 1) + "  containers:\n" + app, crashes
	}
	return b.String() + "  containers:\n" + cache + app, crashes
}

// verified returns a pod's plan and the results of verify with the given number of crashes: whether the plan holds at
// every start, and whether it holds when the pod stops.
func verified(t *testing.T, file string, crashes int) (plan startup.Plan, starts, stops bool) {
	t.Helper()
	out, err := outputOf("outrider", "verify", "-f", file, "--injected", "--only", "crash", "--faults", fmt.Sprint(crashes), "--time", "1h", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var answers []struct {
		Plan    startup.Plan
		Results []struct{ Holds bool }
	}
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != 1 || len(answers[0].Results) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	return answers[0].Plan, answers[0].Results[0].Holds, answers[0].Results[1].Holds
}

// outputOf returns a command's output. The exit status may be 1, which reports findings.
func outputOf(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, &stderr)
	}
	return out, nil
}

// keeps runs a pod for a while, deletes it, and returns an error if the events violate the plan. It returns the
// number of times that a command began.
func keeps(file string, plan startup.Plan, lasts time.Duration, stops bool) (began int, err error) {
	out, err := outputOf("outrider", "run", "-f", file, "--injected", "--duration", lasts.String(), "-o", "json")
	if err != nil {
		return 0, err
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	var summary struct {
		Kind     string
		Deleted  bool
		Timeline startup.Timeline
		Unjudged []startup.Edge
	}
	if err := json.Unmarshal(lines[len(lines)-1], &summary); err != nil || summary.Kind != "summary" {
		return 0, fmt.Errorf("the last line is no summary: %w\n%s", err, out)
	}
	violations := slices.DeleteFunc(startup.Check(plan, summary.Timeline), func(v startup.Violation) bool { return v.How == startup.OutlivedDependency && !stops })
	if len(violations) > 0 || !summary.Deleted {
		return 0, fmt.Errorf("violations %+v, deleted %t\n%s\n%s", violations, summary.Deleted, summary.Timeline, out)
	}
	for _, ev := range summary.Timeline {
		if ev.What == startup.IsStarted {
			began++
		}
	}
	return began, nil
}
