package groups

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// An ended is a pod of a ReplicaSet, whose container "app" began at a second, ran for some seconds, and failed; the
// container "side" began some seconds after the pod; -1: the pod has none.
type ended struct {
	begin, took, side, exit int
	set, image              string
	log                     string // its cause, if the log is there
}

func (e ended) pod(name string) (*evidence.Pod, result.Report) {
	at := func(second int) evidence.Time {
		return evidence.Second(time.Date(2026, 11, 24, 9, 0, second, 0, time.UTC), evidence.NodeClock)
	}
	app := &evidence.Container{Name: "app", Runs: []evidence.Run{{Started: at(e.begin), Finished: at(e.begin + e.took), Exit: &e.exit, Reason: "Error"}}}
	p := &evidence.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: e.image}}}},
		Owners: []evidence.Owner{{Kind: "ReplicaSet", Name: "web-" + e.set}, {Kind: "Deployment", Name: "web"}}, Containers: []*evidence.Container{app}}
	if e.side >= 0 {
		p.Containers = append(p.Containers, &evidence.Container{Name: "side", Runs: []evidence.Run{{Started: at(e.begin + e.side), Running: true}}})
	}
	r := result.Report{Pod: p.Name(), Verdict: result.Undecided, Sentence: "undecided", Decide: "kubectl logs", Findings: []result.Finding{{Code: "app-crash", Container: "app", Confidence: result.Possible}}}
	if e.log != "" {
		from := evidence.Source{Kind: evidence.FromLog, File: name + ".app.log"}
		app.Logs = []*evidence.Log{evidence.NewLog(from, nil, nil)}
		app.Logs[0].Run = 0
		r.Verdict, r.Sentence, r.Decide = result.Found, e.log, ""
		r.Findings = []result.Finding{{Code: "dependency-down", Container: "app", Confidence: result.Certain, Sentence: e.log, Evidence: []evidence.Quote{{Source: from, Text: "i/o timeout"}}}}
	}
	return p, r
}

// A pod whose log is missing takes the cause of one that ended in the same way; what differs makes it possible, or no
// cause at all.
func TestPattern(t *testing.T) {
	const cause = "app got no answer from db:5432"
	told := ended{0, 31, -1, 1, "a", "web:1", cause}
	early := ended{0, 3, 2, 1, "a", "web:1", cause}
	for name, tt := range map[string]struct {
		told []ended // pods with a log
		pod  ended
		want result.Confidence
	}{
		"the same limit":                {[]ended{told}, ended{100, 31, -1, 1, "a", "web:1", ""}, result.Likely},
		"a second more":                 {[]ended{told}, ended{100, 32, -1, 1, "a", "web:1", ""}, result.Likely},
		"the same order of starts":      {[]ended{early}, ended{100, 3, 2, 1, "a", "web:1", ""}, result.Likely},
		"another order of starts":       {[]ended{early}, ended{100, 3, -2, 1, "a", "web:1", ""}, result.Possible},
		"long, in another order":        {[]ended{{0, 31, 2, 1, "a", "web:1", cause}}, ended{100, 31, 25, 1, "a", "web:1", ""}, result.Possible},
		"at once, as most failures":     {[]ended{{0, 1, -1, 1, "a", "web:1", cause}}, ended{100, 1, -1, 1, "a", "web:1", ""}, result.Possible},
		"it lacks a container":          {[]ended{early}, ended{100, 3, -1, 1, "a", "web:1", ""}, result.Possible},
		"another exit code":             {[]ended{told}, ended{100, 31, -1, 2, "a", "web:1", ""}, ""},
		"another revision":              {[]ended{told}, ended{100, 31, -1, 1, "b", "web:1", ""}, ""},
		"another image":                 {[]ended{told}, ended{100, 31, -1, 1, "a", "web:2", ""}, ""},
		"much longer":                   {[]ended{told}, ended{100, 90, -1, 1, "a", "web:1", ""}, ""},
		"two causes with that end":      {[]ended{told, {5, 31, -1, 1, "a", "web:1", "app cannot open its file"}}, ended{100, 31, -1, 1, "a", "web:1", ""}, ""},
		"the same cause in two pods":    {[]ended{told, told}, ended{100, 31, -1, 1, "a", "web:1", ""}, result.Likely},
		"none has a log":                {nil, ended{100, 31, -1, 1, "a", "web:1", ""}, ""},
		"its own log says another one":  {[]ended{told}, ended{100, 31, -1, 1, "a", "web:1", "app cannot open its file"}, ""},
		"it is first, and has no cause": {[]ended{told}, ended{0, 31, -1, 1, "a", "web:1", ""}, result.Likely},
	} {
		t.Run(name, func(t *testing.T) {
			p, r := tt.pod.pod("web-0")
			set, reports := &evidence.Set{Pods: []*evidence.Pod{p}}, []result.Report{r}
			for i, e := range tt.told {
				p, r := e.pod(fmt.Sprintf("web-%d", i+1))
				set.Pods, reports = append(set.Pods, p), append(reports, r)
			}
			group(set, reports, diagnose.Options{})
			got := reports[0]
			if tt.want == "" {
				if got.SameAs != "" || strings.Contains(got.Sentence, "as in") {
					t.Fatalf("%s %q, the same as %q", got.Verdict, got.Sentence, got.SameAs)
				}
				return
			}
			f := got.Findings[0]
			if got.SameAs != "shop/web-1" || f.Confidence != tt.want || f.Code != "dependency-down" || len(f.Against) == 0 || !strings.Contains(f.Sentence, cause) {
				t.Errorf("the same as %q: %+v", got.SameAs, f)
			}
			if undecided := got.Verdict == result.Undecided; undecided != (tt.want == result.Possible) || undecided != (got.Decide != "") {
				t.Errorf("%s, which %q would decide", got.Verdict, got.Decide)
			}
			if g := reports[1].Group; g == nil || !strings.HasPrefix(g.Sentence, cause+" (1 of them "+string(tt.want)+": its log is missing") || g.Members[0] != "shop/web-1" || reports[1].Findings[0].Confidence != result.Certain {
				t.Errorf("the group %+v", g)
			}
		})
	}
}
