package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// outage returns the reports of 24 pods: 19 with one cause, 2 with another, and 3 well ones; and a workload without pods.
func outage() (out []result.Report) {
	at := func(minute int) evidence.Time {
		return evidence.Second(time.Date(2026, 11, 24, 14, minute, 0, 0, time.UTC), evidence.APIClock)
	}
	add := func(name, code, sentence string, same string, g *result.Group) {
		r := result.Report{Version: result.Version, Pod: name, Verdict: result.Found, Sentence: sentence, SameAs: same, Group: g}
		r.Findings = []result.Finding{{Code: finding.Code(code), Sentence: sentence, Confidence: result.Certain, Disproof: "a start", Remedy: finding.Remedy{Sentence: "create it", Command: "kubectl describe pod"}}}
		out = append(out, r)
	}
	add("shop/pay-0", "app-crash", "app ended", "", &result.Group{Sentence: "app ended", Pods: 2, Of: 2, Workloads: []string{"StatefulSet shop/pay"}, Members: []string{"shop/pay-0", "shop/pay-1"}})
	add("shop/pay-1", "app-crash", "app ended", "shop/pay-0", nil)
	for i := range 3 {
		out = append(out, result.Report{Version: result.Version, Pod: fmt.Sprintf("shop/well-%d", i), Verdict: result.Nothing, Sentence: "nothing is wrong"})
	}
	g := &result.Group{Sentence: `secret "pay-db" not found`, Remedy: "create it", Pods: 19, Of: 20, Workloads: []string{"Deployment shop/web"}, Since: at(2), Earlier: true,
		Common: []string{"all of them are of revision 8, and the other pod is not"}, Changes: []evidence.Quote{{At: at(1), Text: "revision 8 of Deployment shop/web began"}, {Text: "ConfigMap shop/web was created"}}}
	for i := range 19 {
		g.Members = append(g.Members, fmt.Sprintf("shop/web-%d", i))
	}
	add("shop/web-0", "config-missing", `app: secret "pay-db" not found`, "", g)
	for i := range 18 {
		add(fmt.Sprintf("shop/web-%d", i+1), "config-missing", `app: secret "pay-db" not found`, "shop/web-0", nil)
	}
	add("ReplicaSet shop/api-1", "pods-not-created", "no pod of ReplicaSet api-1 can be created: the namespace is being deleted", "", &result.Group{Sentence: "no pod of ReplicaSet api-1 can be created: the namespace is being deleted", Workloads: []string{"ReplicaSet shop/api-1"}, Members: []string{"ReplicaSet shop/api-1"}})
	return out
}

// Each format that people read says which pods have a cause, since when, and what changed before; the cause of the most
// pods comes first; of each group one pod is shown in full.
func TestGroupsAreShown(t *testing.T) {
	for _, o := range []Options{{Format: "text"}, {Format: "text", Fleet: true}, {Format: "md"}, {Format: "md", Fleet: true}, {Format: "html"}, {Format: "html", Fleet: true}} {
		t.Run(fmt.Sprintf("%s %v", o.Format, o.Fleet), func(t *testing.T) {
			o.Columns = 1000
			var b strings.Builder
			if err := Write(&b, outage(), o); err != nil {
				t.Fatal(err)
			}
			text := strings.NewReplacer("&#34;", `"`, "&quot;", `"`, "\\", "").Replace(b.String())
			at := -1
			for _, want := range []string{
				`19 of 20 pods of Deployment shop/web: secret "pay-db" not found, since 14:02:00Z on 24 Nov or earlier`, "all of them are of revision 8, and the other pod is not",
				"they are shop/web-0, shop/web-1, shop/web-2 and 16 more", "What changed before:", "14:01:00Z on 24 Nov: revision 8 of Deployment shop/web began",
				"at a time that is not in the evidence: ConfigMap shop/web was created", "all 2 pods of StatefulSet shop/pay: app ended",
				"ReplicaSet shop/api-1: no pod of ReplicaSet api-1 can be created",
			} {
				i := strings.Index(text, want)
				if i <= at {
					t.Fatalf("%q is not there, or not after what comes before it:\n%s", want, text)
				}
				at = i
			}
			if !o.Fleet && !strings.Contains(text, "24 pods, 1 workload that cannot create pods: 3 causes, nothing is wrong with 3") {
				t.Errorf("pods are not counted:\n%s", text)
			}
			if n := strings.Count(text, "config-missing (certain)"); n != 1 && o.Format == "text" {
				t.Errorf("the cause is explained %d times", n)
			}
			if o.Format != "html" && !o.Fleet && !strings.Contains(text, "shop/well-2: nothing is wrong") {
				t.Errorf("the others are not named:\n%s", text)
			}
		})
	}
}

// The causes of a page are limited, and it says how many are left out.
func TestCausesAreBounded(t *testing.T) {
	var all []result.Report
	for i := range mostGroups + 7 {
		name := fmt.Sprintf("shop/web-%d", i)
		all = append(all, result.Report{Pod: name, Verdict: result.Undecided, Sentence: "undecided", Group: &result.Group{Sentence: "undecided", Pods: 1, Of: 1, Workloads: []string{"Pod " + name}, Members: []string{name}}})
	}
	for _, o := range []Options{{Format: "text"}, {Format: "text", Fleet: true}, {Format: "md"}, {Format: "md", Fleet: true}, {Format: "html"}, {Format: "html", Fleet: true}} {
		var b strings.Builder
		if err := Write(&b, all, o); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(text, "7 more causes, of fewer pods, are not shown") {
			t.Errorf("%s %v: %s", o.Format, o.Fleet, text)
		}
	}
	var b strings.Builder
	if err := FleetText(&b, Made(mostRows+500), 100); err != nil || !strings.Contains(b.String(), "500 more pods are not shown") {
		t.Errorf("%v: the rows are not bounded", err)
	}
}

func TestWhose(t *testing.T) {
	for want, g := range map[string]result.Group{
		"shop/a":                             {Pods: 1, Of: 1, Workloads: []string{"Pod shop/a"}, Members: []string{"shop/a"}},
		"1 of 3 pods of Deployment a":        {Pods: 1, Of: 3, Workloads: []string{"Deployment a"}, Members: []string{"a"}},
		"all 2 pods of Deployment a":         {Pods: 2, Of: 2, Workloads: []string{"Deployment a"}, Members: []string{"a", "b"}},
		"2 of 3 pods web-…":                  {Pods: 2, Of: 3, Workloads: []string{"Pods web-…"}, Members: []string{"a", "b"}},
		"2 pods":                             {Pods: 2, Of: 2, Workloads: []string{"Pod a", "Pod b"}, Members: []string{"a", "b"}},
		"2 workloads":                        {Workloads: []string{"Job a", "Job b"}, Members: []string{"Job a", "Job b"}},
		"Job a":                              {Workloads: []string{"Job a"}, Members: []string{"Job a"}},
		"3 of 9 pods of Deployment a, Job b": {Pods: 3, Of: 9, Workloads: []string{"Deployment a", "Job b"}, Members: []string{"a", "b", "c"}},
		"5 of 9 pods of 4 workloads (Job a, Job b, Job c and others)": {Pods: 5, Of: 9, Workloads: []string{"Job a", "Job b", "Job c", "Job d"}, Members: []string{"a", "b", "c", "d", "e"}},
	} {
		if got := whose(&g); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
