package groups

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/test/mutants"
)

// Two sentences have the same shape if they differ only in what is a pod's own.
func TestShape(t *testing.T) {
	shape := func(pod, text string) string {
		p := &evidence.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}, Spec: corev1.PodSpec{NodeName: "node-of-" + pod}}}
		return shapeOf(member{report: &result.Report{Verdict: result.Found, Sentence: text, Findings: []result.Finding{{Code: "app-crash"}}}, pod: p})
	}
	const a, b = "web-7d9f8c6b5-x2x7k", "web-7d9f8c6b5-bfhcb"
	for _, same := range [][2]string{
		{"refused by 10.1.2.3:5432", "refused by 10.4.5.6:5432"},
		{"refused by [fd00::1]:5432", "refused by [fd00:1::22]:5432"},
		{"address fd00:0:0:1::7 is away", "address fd00:0:0:1::8 is away"},
		{"file /data/" + a + "/x", "file /data/" + b + "/x"},
		{"not on node-of-" + a, "not on node-of-" + b},
		{"0/5 nodes are available: 4 Insufficient memory. (9 times)", "0/6 nodes are available: 5 Insufficient memory. (12 times)"},
		{"after 5m30s at 2026-11-24T14:02:03.5Z", "after 7s at 2026-11-24T14:02:04Z"},
		{"at 14:02:03, 12:00:00", "at 14:02:04, 12:00:01"},
		{"request 123e4567-e89b-12d3-a456-426614174000", "request 123e4567-e89b-12d3-a456-426614174001"},
		{"sandbox 6f1f6f1f6f1f6f1f failed", "sandbox 7f1f6f1f6f1f6f1f failed"},
		{"volume kube-api-access-x2x7k", "volume kube-api-access-4bbbb"},
		{"of ReplicaSet web-7d9f8c6b5 now", "of ReplicaSet web-5b4c7d8f9 now"},
		{"host kafka-0.kafka:9092", "host kafka-12.kafka:9092"},
		{"cannot be pulled (ErrImagePull)", "cannot be pulled (ImagePullBackOff)"},
		{"read 0xc000012345 of 3Gi, 12 ms", "read 0xc000099999 of 4Gi, 7 ms"},
	} {
		if x, y := shape(a, same[0]), shape(b, same[1]); x != y {
			t.Errorf("%q and %q are two causes: %q, %q", same[0], same[1], x, y)
		}
	}
	for _, other := range [][2]string{
		{`secret "pay-db" not found`, `secret "pay-tls" not found`},
		{`secret "pay-https" not found`, `secret "pay-grpcs" not found`},
		{`secret "db-1" not found`, `secret "db-2" not found`},
		{"image r.example/web:1.4 cannot be pulled", "image r.example/web:1.5 cannot be pulled"},
		{"image r.example/web:14 cannot be pulled", "image r.example/web:15 cannot be pulled"},
		{"image web@sha256:" + strings.Repeat("a", 64), "image web@sha256:" + strings.Repeat("b", 64)},
		{"refused by 10.1.2.3:5432", "refused by 10.1.2.3:6379"},
		{"refused by db:5432", "refused by cache:5432"},
		{"nothing listened on port 8080 then", "nothing listened on port 8081 then"},
		{"ended (exit code 1)", "ended (exit code 137)"},
		{"the server said status 503", "the server said status 404"},
		{"ended by signal 9", "ended by signal 11"},
	} {
		if x, y := shape(a, other[0]), shape(b, other[1]); x == y {
			t.Errorf("%q and %q are one cause: %q", other[0], other[1], x)
		}
	}
	if long := strings.Repeat("1.1.1.1 ", 1<<17); len(shape(a, long)) > 2*longest {
		t.Error("the shape of a sentence is not bounded")
	}
}

func TestBlend(t *testing.T) {
	for _, tt := range [][3]string{
		{"as is", "as is", "as is"},
		{"by 10.1.2.3:5432 itself", "by 10.4.5.6:5432 itself", "by …:5432 itself"},
		{"image r/a:1 is", "image r/b:1 is", "image r/…:1 is"},
		{"made a call, was refused, and ended (exit code 1)", "made a call, was refused, and went on", "made a call, was refused, and …"},
		{"it took 1 min 2 s to start", "it took 2 s to start", "it took … 2 s to start"},
		{"a", "b", "…"},
		{"", "b c", "…"},
		{"a a a", "a a", "a a …"},
	} {
		if got := blend(tt[0], tt[1]); got != tt[2] {
			t.Errorf("%q and %q: %q, want %q", tt[0], tt[1], got, tt[2])
		}
	}
}

// A pod of a Deployment in a set for group.
func member0(namespace, deployment, name, node string) *evidence.Pod {
	return &evidence.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node}}, Owners: []evidence.Owner{{Kind: "ReplicaSet", Name: deployment + "-x"}, {Kind: "Deployment", Name: deployment}}}
}

func found(p *evidence.Pod, code finding.Code, sentence string) result.Report {
	return result.Report{Pod: p.Name(), Verdict: result.Found, Sentence: sentence, Findings: []result.Finding{{Code: code, Container: "app", Sentence: sentence}}}
}

// How far a cause reaches depends on its kind.
func TestScopes(t *testing.T) {
	for name, tt := range map[string]struct {
		code     finding.Code
		sentence string
		pods     []string // NAMESPACE DEPLOYMENT NODE
		want     []int    // members of the groups
	}{
		"the own crash of two workloads":               {"app-crash", "app ended by itself", []string{"a x n", "a y n", "a x n"}, []int{2, 1}},
		"a Secret of a namespace":                      {"config-missing", `secret "s" not found`, []string{"a x n", "a y n", "b x n"}, []int{2, 1}},
		"the same Secret is missing in many":           {"config-missing", `secret "s" not found`, []string{"a x n", "a y n", "b x n", "c x n"}, []int{4}},
		"a node":                                       {"node-lost", "ended with its node", []string{"a x n1", "b y n1", "a x n2"}, []int{2, 1}},
		"the control plane":                            {"no-control-plane", "does not reach it", []string{"a x n1", "b y n2"}, []int{2}},
		"a destination with a name":                    {"dependency-down", "app was refused by db:1", []string{"a x n1", "a y n2", "b x n2"}, []int{2, 1}},
		"a destination that is an address":             {"dependency-down", "app was refused by 10.0.0.1:1", []string{"a x n1", "a y n2", "a x n2"}, []int{2, 1}},
		"an eviction of a pod whose node is not there": {"evicted", "evicted", []string{"a x ", "a y "}, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			set := &evidence.Set{}
			var reports []result.Report
			for i, of := range tt.pods {
				part := strings.Split(of, " ")
				p := member0(part[0], part[1], fmt.Sprintf("%s-%d", part[1], i), part[2])
				set.Pods, reports = append(set.Pods, p), append(reports, found(p, tt.code, tt.sentence))
			}
			group(set, reports, diagnose.Options{})
			var got []int
			for _, r := range reports {
				if (r.Group == nil) != (r.SameAs != "") {
					t.Errorf("%s: group %v, same as %q", r.Pod, r.Group, r.SameAs)
				}
				if r.Group != nil {
					got = append(got, len(r.Group.Members))
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// One race stays one cause whatever the container did after it, and the sentence does not say of all what one did.
func TestOneRace(t *testing.T) {
	a, b := member0("shop", "web", "web-1", "n"), member0("shop", "web", "web-2", "n")
	reports := []result.Report{found(a, "startup-race", "app made a call, was refused, and ended (exit code 1)"), found(b, "startup-race", "app made a call, was refused, and went on")}
	group(&evidence.Set{Pods: []*evidence.Pod{a, b}}, reports, diagnose.Options{})
	if g := reports[0].Group; g == nil || g.Sentence != "app made a call, was refused, and …" || reports[1].SameAs != "shop/web-1" {
		t.Errorf("%+v, %+v", reports[0].Group, reports[1])
	}
}

// The time since when is certain if nothing older can be missing.
func TestSince(t *testing.T) {
	at := func(second int) evidence.Time {
		return evidence.Second(time.Date(2026, 11, 24, 14, 2, second, 0, time.UTC), evidence.NodeClock)
	}
	pod := func(unknown int) *evidence.Pod {
		return &evidence.Pod{Object: &corev1.Pod{}, Containers: []*evidence.Container{{Name: "app", Unknown: unknown}}}
	}
	of := func(p *evidence.Pod, quotes ...evidence.Quote) member {
		return member{pod: p, report: &result.Report{Findings: []result.Finding{{Container: "app", Sentence: `secret "s" not found`, Evidence: quotes}}}}
	}
	ownClock := at(1)
	ownClock.Clock = "log of app"
	told := pod(0)
	told.Events = []evidence.Event{{Container: "app", Message: `Error: secret "s" not found`, First: at(5), Last: at(50)}, {Container: "app", Message: "Error: another cause", First: at(2)}, {Message: `Error: secret "s" not found`, First: at(3)}}
	lost := pod(0)
	lost.Object.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(at(30).At)}}
	for name, tt := range map[string]struct {
		members []member
		want    evidence.Time
		earlier bool
	}{
		"the first of two pods":        {[]member{of(pod(0), evidence.Quote{At: at(20)}), of(pod(0), evidence.Quote{At: at(10)})}, at(10), false},
		"older runs are not known":     {[]member{of(pod(3), evidence.Quote{At: at(20)})}, at(20), true},
		"a clock of its own":           {[]member{of(pod(0), evidence.Quote{At: ownClock}, evidence.Quote{At: at(9)})}, at(9), false},
		"the event that says the same": {[]member{of(told, evidence.Quote{At: at(50), Text: "waits"})}, at(5), false},
		"not ready since":              {[]member{of(lost)}, at(30), false},
		"no time":                      {[]member{of(pod(3))}, evidence.Time{}, false},
	} {
		if got, earlier := since(tt.members); got != tt.want || earlier != tt.earlier {
			t.Errorf("%s: %v %v", name, got, earlier)
		}
	}
}

func TestWorkloadOf(t *testing.T) {
	named := func(name string, meta bool) *evidence.Pod {
		return &evidence.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}, Omitted: evidence.Omitted{Meta: meta}}
	}
	for _, tt := range []struct {
		pod  *evidence.Pod
		want string
	}{
		{member0("shop", "web", "web-1", ""), "Deployment shop/web"},
		{named("web-1", false), "Pod shop/web-1"},
		{named("web-7d9f8c6b5-x2x7k", true), "Pods shop/web-…"},
		{named("db-0", true), "Pods shop/db-…"},
		{named("web", true), "Pod shop/web"},
	} {
		if got := workloadOf(tt.pod); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.pod.Name(), got, tt.want)
		}
	}
}

// The changes of a revision are named; values of variables and arguments are not.
func TestCompare(t *testing.T) {
	template := func(edit func(*corev1.PodTemplateSpec)) *corev1.PodTemplateSpec {
		t := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "web:1", Env: []corev1.EnvVar{{Name: "A", Value: "hunter1"}}}}}}
		edit(t)
		return t
	}
	app := func(edit func(*corev1.Container)) func(*corev1.PodTemplateSpec) {
		return func(t *corev1.PodTemplateSpec) { edit(&t.Spec.Containers[0]) }
	}
	limit := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}
	}
	for want, edit := range map[string]func(*corev1.PodTemplateSpec){
		"":                                 func(*corev1.PodTemplateSpec) {},
		"the image of app (web:1 → web:2)": app(func(c *corev1.Container) { c.Image = "web:2" }),
		"the command of app":               app(func(c *corev1.Container) { c.Args = []string{"--password=hunter2"} }),
		"the limits of app (none → memory=1Gi)": app(func(c *corev1.Container) { c.Resources.Limits = limit("1024Mi") }),
		"the variables of app (A, B)":           app(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "B", Value: "hunter2"}} }),
		"the probes of app":                     app(func(c *corev1.Container) { c.LivenessProbe = &corev1.Probe{} }),
		"the volumes (config)":                  func(t *corev1.PodTemplateSpec) { t.Spec.Volumes = []corev1.Volume{{Name: "config"}} },
		"the annotations (checksum/config)":     func(t *corev1.PodTemplateSpec) { t.Annotations = map[string]string{"checksum/config": "1"} },
		"the service account (none → robot)":    func(t *corev1.PodTemplateSpec) { t.Spec.ServiceAccountName = "robot" },
		"container side, which is new":          func(t *corev1.PodTemplateSpec) { t.Spec.InitContainers = []corev1.Container{{Name: "side"}} },
		"container app, which is gone":          func(t *corev1.PodTemplateSpec) { t.Spec.Containers = nil },
		"the variables of app (B, C, D, E, F, 2 more)": app(func(c *corev1.Container) {
			for _, name := range "BCDEFGH" {
				c.Env = append(c.Env, corev1.EnvVar{Name: string(name)})
			}
		}),
	} {
		if got := strings.Join(compare(template(func(*corev1.PodTemplateSpec) {}), template(edit)), "; "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A roll-back takes a ReplicaSet that is older than the one before it: its creation is not when it began.
func TestRollback(t *testing.T) {
	set := func(name, revision string, hour int) evidence.Owner {
		return evidence.Owner{Kind: "ReplicaSet", Name: "web-" + name, Template: &corev1.PodTemplateSpec{}, Object: &metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{templateHash: name}, Annotations: map[string]string{numberOf: revision},
			CreationTimestamp: metav1.NewTime(time.Date(2026, 11, 24, hour, 0, 0, 0, time.UTC)), OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", Controller: new(true)}}}}
	}
	p := member0("shop", "web", "web-1", "n")
	p.Object.Labels = map[string]string{templateHash: "a"}
	m := member{pod: p, workload: "Deployment shop/web"}
	h := newHistory(&evidence.Set{Pods: []*evidence.Pod{p}, Owners: []evidence.Owner{set("a", "9", 8), set("b", "8", 12)}}, diagnose.Options{})
	q, known := h.rolledOut([]member{m})
	if !known || q.At.Known() || q.Text != "revision 9 of Deployment shop/web began after revision 8, with the same containers and volumes" {
		t.Errorf("%+v, %v", q, known)
	}
	p.Events = []evidence.Event{{About: "Deployment shop/web", Reason: "ScalingReplicaSet", Message: "Scaled up replica set web-a from 0 to 1", First: evidence.Second(time.Date(2026, 11, 24, 14, 0, 0, 0, time.UTC), evidence.APIClock)}}
	if q, _ := h.rolledOut([]member{m}); q.At.At.Hour() != 14 {
		t.Errorf("%+v", q)
	}
	early := evidence.Second(time.Date(2026, 11, 24, 13, 0, 0, 0, time.UTC), evidence.APIClock)
	m.report = &result.Report{}
	if out := h.before([]member{m}, early); len(out) != 0 {
		t.Errorf("what changed later is a cause: %+v", out)
	}
	other := *p
	other.Object = p.Object.DeepCopy()
	other.Object.Labels[templateHash] = "b"
	if _, known := h.rolledOut([]member{m, {pod: &other, workload: m.workload}}); known {
		t.Error("pods of two revisions have it, and the roll-out is called the change before it")
	}
}

// Ten thousand pods with many causes take seconds, in whatever way they are spread.
func BenchmarkGroup(b *testing.B) {
	for name, causes := range map[string]int{"one cause": 1, "each its own": 10_000} {
		b.Run(name, func(b *testing.B) {
			set := &evidence.Set{}
			var reports []result.Report
			for i := range 10_000 {
				p := member0("shop", "web", fmt.Sprintf("web-7d9f8c6b5-%05d", i), fmt.Sprintf("n%d", i%100))
				set.Pods = append(set.Pods, p)
				reports = append(reports, found(p, "app-crash", fmt.Sprintf("app ended by itself: cannot open /data/x%d, at 10.0.0.%d after %d tries (exit code 1)", i%causes, i%250, i)))
			}
			for b.Loop() {
				group(set, slices.Clone(reports), diagnose.Options{})
			}
		})
	}
}

// The tests notice each mutant of the code that decides what is one cause.
func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestShape|TestBlend|TestScopes|TestOneRace|TestSince|TestRollback|TestPattern", map[string]mutants.Mutant{
		"any failing pod is a part of the node":  {File: "node.go", From: `node != "" && networkParts.MatchString(m.report.Findings[0].Container)`, To: `node != ""`, Tests: "TestPartsOfTheNode"},
		"any cause is a consequence":             {File: "node.go", From: `r.Verdict == result.Found && unreached.MatchString(f.Sentence)`, To: `r.Verdict == result.Found`, Tests: "TestPartsOfTheNode"},
		"a word is a generated name":             {File: "alike.go", From: `!strings.ContainsAny(end, "2456789")`, To: `false`},
		"ports and statuses are amounts":         {File: "alike.go", From: `strings.Join(kept, "\x01")`, To: `""`},
		"the crash of one workload is all":       {File: "groups.go", From: `append(parts, container, m.workload)`, To: `append(parts, container)`},
		"an address is the same for all":         {File: "groups.go", From: `strings.Contains(m.shape, "ADDRESS")`, To: `false`},
		"two namespaces are many":                {File: "groups.go", From: `len(spread[m.shape]) < many`, To: `len(spread[m.shape]) < 2`},
		"older runs do not count":                {File: "groups.go", From: `c != nil && (c.Unknown > 0 || c.Restarts < 0)`, To: `false`},
		"each clock counts":                      {File: "groups.go", From: `at.Known() && (at.Clock == evidence.NodeClock || at.Clock == evidence.APIClock)`, To: `at.Known()`},
		"what changed later was before":          {File: "history.go", From: `q.At.At.After(since.Latest())`, To: `false`},
		"any log tells of any end":               {File: "pattern.go", From: `*a.Exit != *b.Exit`, To: `false`},
		"the length of a run is nothing":         {File: "pattern.go", From: `!known || (took-tookToo).Abs() > max(sameTime, tookToo/ofDuration)`, To: `!known`},
		"each pattern is likely":                 {File: "pattern.go", From: `(others > 0 || tookToo >= telling)`, To: `true`},
		"the order of starts is nothing":         {File: "pattern.go", From: `same && a.Number == b.Number`, To: `(same || true) && a.Number == b.Number`},
		"the first of two causes is taken":       {File: "pattern.go", From: `all[like].group != all[j].group`, To: `false`},
		"a roll-back began with its ReplicaSet":  {File: "history.go", From: `r.created.Before(before.created)`, To: `false`},
		"the roll-out of some is the one of all": {File: "history.go", From: `hashOf(o.pod) != r.hash`, To: `false`},
	})
}
