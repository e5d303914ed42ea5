package page

import (
	"fmt"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/result"
)

// Made returns the reports of n invented pods for measurements and tests: most are healthy, some fail for one of a
// few causes, and a few are not ready.
func Made(n int) []result.Report {
	causes := []finding.Code{"startup-race", "no-control-plane", "app-crash", "image-missing"}
	out := make([]result.Report, 0, n)
	for i := range n {
		r := result.Report{Version: result.Version, Pod: fmt.Sprintf("shop-%d/web-%d-5d9c7b6f4d-x2x7k", i%20, i), Verdict: result.Nothing, Sentence: "nothing is wrong", Start: &result.Start{State: result.StartReady}}
		at := time.Duration(0)
		for j, p := range result.PhaseNames {
			took := time.Duration(1+(i*7+j*13)%11) * 700 * time.Millisecond
			r.Start.Phases = append(r.Start.Phases, result.Phase{Name: p, From: at, Took: result.Elapsed{Time: took}})
			at += took
		}
		if i%25 == 0 { // this pod is not ready yet, so its last phase has no end
			at += 10 * time.Minute
			r.Start.State, r.Start.Phases = result.StartNotReady, r.Start.Phases[:len(r.Start.Phases)-1]
		}
		r.Start.Took = result.Elapsed{Time: at, Error: time.Second}
		if i%8 == 0 {
			code := causes[i/8%len(causes)]
			r.Verdict, r.Sentence = result.Found, fmt.Sprintf("%s: made up for web-%d, with a sentence that is about as long as those of real findings are", code, i)
			r.Findings = []result.Finding{{Code: code, Sentence: r.Sentence, Container: "web", Confidence: result.Likely}}
		}
		out = append(out, r)
	}
	return out
}
