package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/verify"
	"outrider.dev/test/corpus"
)

// corpusTime is the environment variable that selects the long form of the test. Its value is the time bound of each
// search, such as 10s, which is the default of outrider verify.
const corpusTime = "OUTRIDER_VERIFY_CORPUS"

// For the largest pods of the corpus, the answer of verify names the bound of the search. If the search was cut
// short, the answer names the bound that ended it. The test also prints the time of each search.
func TestAnswersAboutLargePodsSayTheirBound(t *testing.T) {
	bound := verify.Bound{States: 500, Time: time.Hour}
	if text := os.Getenv(corpusTime); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			t.Fatalf("%s=%q: must be a time like 10s", corpusTime, text)
		}
		bound.States, bound.Time = 1_000_000, d
	}
	cut := 0
	for _, o := range largest(t, 6) {
		for _, injected := range []bool{false, true} {
			if injected {
				r, err := inject.Pod(&o.Pod, inject.Namespace{Name: "default"}, inject.Options{Manual: true, Kubernetes: 34})
				var refusal *verdict.Refusal
				if errors.As(err, &refusal) {
					t.Logf("%s is not injected: %v", o, err)
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				o.Pod = *r.Pod
			}
			s, err := NewSubject(o, 34)
			if err != nil {
				t.Fatal(err)
			}
			for _, bound.Faults = range []int{1, 2} {
				began := time.Now()
				v, err := s.Verify(context.Background(), Promises["both"], bound, func(string, verify.Progress) {})
				if err != nil {
					t.Fatal(err)
				}
				for _, a := range v.Results {
					verdict := a.Verdict()
					t.Logf("%s, %d containers, injected %t, --faults %d, %s: %s", o, len(s.Plan.Containers), injected, bound.Faults, time.Since(began).Round(100*time.Millisecond), verdict)
					if a.CutShort != "" {
						cut++
					}
					says := strings.Contains(verdict, "; bound: "+a.Bound.String())
					if a.CutShort != "" && !strings.Contains(verdict, "not all states were explored, cut short by "+string(a.CutShort)) || a.Counterexample == nil && !says {
						t.Errorf("%s: %q does not say what it covers", o, verdict)
					}
				}
			}
		}
	}
	if cut == 0 && bound.Time == time.Hour {
		t.Error("no search was cut short, so nothing was tested")
	}
}

// largest returns the n pods of the corpus with the most containers, and the StatefulSet of MySQL.
func largest(t *testing.T, n int) []podfile.Object {
	files, err := corpus.Sane()
	if err != nil {
		t.Fatal(err)
	}
	var all []podfile.Object
	for _, f := range files {
		objects, _, err := podfile.Parse(f.Name, f.Data)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, objects...)
	}
	size := func(o podfile.Object) int { return len(o.Pod.Spec.InitContainers) + len(o.Pod.Spec.Containers) }
	slices.SortStableFunc(all, func(a, b podfile.Object) int { return cmp.Compare(size(b), size(a)) })
	mysql := slices.IndexFunc(all, func(o podfile.Object) bool { return o.Kind == "StatefulSet" && strings.Contains(o.Name, "mysql") })
	if mysql < 0 {
		t.Fatal("the corpus has no StatefulSet of MySQL")
	}
	if mysql < n {
		return all[:n]
	}
	return append(slices.Clone(all[:n]), all[mysql])
}

// A Job ends although its pod contains a server and a plain proxy: the gates end the server, and the proxy exits once
// every application with a gate has ended and will not be restarted. If one gate is missing, the proxy keeps running.
func TestJobsEnd(t *testing.T) {
	const gated = "command: [/outrider/bin/outrider-agent, gate, --name, %s%s, --, /app]"
	const job = "{kind: Job, apiVersion: batch/v1, metadata: {name: j}, spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: outrider-proxy}, {name: db, %s}, {name: app, %s}]}}}}"
	app := fmt.Sprintf(gated, "app", ", --after, db is healthy")
	helper := fmt.Sprintf(gated, "db", ", --helper-of, app")
	for text, want := range map[string]string{
		fmt.Sprintf(job, helper, app):                                            "the pod ended at ",
		fmt.Sprintf(job, fmt.Sprintf(gated, "db", ""), app):                      "the pod ended at ",
		fmt.Sprintf(job, helper, "command: [/app]"):                              "it runs on at 2m0s",
		strings.Replace(fmt.Sprintf(job, helper, app), "OnFailure", "Always", 1): "it runs on at 2m0s",
	} {
		objects, _, err := podfile.Parse("job.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSubject(objects[0], 34)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Simulate(Behaviour{})
		if err != nil || !strings.Contains(got.Verdict(), want) {
			t.Errorf("%v, %s; want %s:\n%s\n%s", err, got.Verdict(), want, text, strings.Join(got.Assumptions(), "\n"))
		}
	}
}
