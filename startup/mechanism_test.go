package startup

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestKeeps(t *testing.T) {
	const (
		sidecar = "container proxy is sidecar, healthy by %\ncontainer app is plain\napp after proxy is healthy"
		plain   = "container proxy is plain, healthy by %\ncontainer app is plain\napp after proxy is healthy"
	)
	with := func(text, health string) string { return strings.ReplaceAll(text, "%", health) }
	tests := map[string]struct {
		plan string
		by   Mechanism
		on   Kubernetes
		want string
	}{
		"native, by startup probe": {with(sidecar, "startup-probe"), Native, 34, "at the first start, stop: first-start-only probe-granularity"},
		"native, by hook":          {with(sidecar, "post-start"), Native, 34, "at the first start, stop: first-start-only hides-pod-ip relist-delay"},
		"native, by hook, on 1.36": {with(sidecar, "post-start"), Native, 36, "at the first start, stop: first-start-only hides-pod-ip"},
		"native, and the kubelet never looks at readiness": {with(sidecar, "readiness-probe"), Native, 34,
			"nowhere: kubelet-does-not-wait!"},
		"native, on 1.28":                       {with(sidecar, "startup-probe"), Native, 28, "nowhere: needs-1.29!"},
		"native, of a plain container":          {with(plain, "post-start"), Native, 34, "nowhere: not-listed-before!"},
		"hold":                                  {with(plain, "post-start"), Hold, 34, "at the first start: fails-open first-start-only hides-pod-ip no-stop-order"},
		"hold, without a hook":                  {with(plain, "readiness-probe"), Hold, 34, "nowhere: kubelet-does-not-wait!"},
		"hold, and a hook waits for sockets":    {strings.Replace(with(plain, "post-start"), "post-start", "post-start, outlives app", 1), Hold, 34, "at the first start, stop: fails-open first-start-only hides-pod-ip stop-by-sockets"},
		"hold, and a hook waits for others":     {strings.Replace(with(plain, "post-start"), "post-start", "post-start, outlives web", 1), Hold, 34, "at the first start: fails-open first-start-only hides-pod-ip no-stop-order"},
		"a wrapper, and a hook waits":           {strings.Replace(with(plain, "report"), "report", "report, outlives app", 1), Wrapper, 34, "at every start, stop: polls stop-by-sockets"},
		"a loop, and a hook waits":              {strings.Replace(with(plain, "report"), "report", "report, outlives app", 1), HealthLoop, 34, "at every start: polls ignores-sigterm no-stop-order"},
		"a sleep, and a hook waits":             {strings.Replace(with(plain, "report"), "report", "report, outlives app", 1), Sleep, 34, "nowhere: fixed-delay no-stop-order"},
		"gate":                                  {with(plain, "report"), Gate, 28, "at every start, stop: needs-command"},
		"gate, of what leaves first":            {strings.Replace(with(plain, "report"), "report", "report, stops at once", 1), Gate, 34, "at every start: needs-command no-stop-order"},
		"gate, of what leaves first, a sidecar": {strings.Replace(with(sidecar, "startup-probe"), "startup-probe", "startup-probe, stops at once", 1), Gate, 34, "at every start, stop: needs-command"},
		"gate, and nothing reports":             {with(plain, "nothing"), Gate, 34, "nowhere: no-health-signal!"},
		"sleep":                                 {with(plain, "report"), Sleep, 34, "nowhere: fixed-delay no-stop-order"},
		"the app's own postStart":               {with(plain, "report"), PostStartProbe, 34, "nowhere: runs-concurrently no-stop-order"},
		"a loop in the command":                 {with(plain, "report"), HealthLoop, 34, "at every start: polls ignores-sigterm no-stop-order"},
		"a loop, and the proxy is a sidecar":    {with(sidecar, "report"), HealthLoop, 34, "at every start, stop: polls ignores-sigterm"},
		"a loop over a port":                    {strings.Replace(with(plain, "report"), "is healthy", "is started", 1), HealthLoop, 34, "at every start: checks-port-only polls ignores-sigterm no-stop-order"},
		"a loop that gives up":                  {with(plain, "report"), BoundedLoop, 34, "nowhere: limited-retries polls no-stop-order"},
		"a wrapper that is not ours":            {with(plain, "report"), Wrapper, 34, "at every start: polls no-stop-order"},
		"a wrapper, and the proxy is a sidecar": {with(sidecar, "report"), Wrapper, 34, "at every start, stop: polls"},
		"a wrapper after a step":                {"container a is plain, restart never\ncontainer b is plain\nb after a is completed", Wrapper, 34, "at every start, stop: polls"},
		"init, of what is no init":              {with(plain, "report"), InitDone, 34, "nowhere: not-listed-before! only-completed!"},
		"init":                                  {"container db is init\ncontainer app is plain\napp after db is completed", InitDone, 34, "at every start, stop: slow-init"},
		"gate inside an init container":         {"container a is init\ncontainer b is sidecar, healthy by report\na after b is healthy", Gate, 34, "nowhere: deadlock!"},
		"native, with a second app": {with(sidecar, "startup-probe") + "\ncontainer web is plain", Native, 34,
			"at the first start, stop: first-start-only unordered-restart-beside-siblings probe-granularity"},
		"native, with a later init container": {"container proxy is sidecar\ncontainer migrate is init\ncontainer app is plain\napp after proxy is started", Native, 34,
			"at the first start, stop: first-start-only unordered-restart-after-later-init"},
		"native, with options it does not have": {
			"container p is sidecar\ncontainer app is plain\napp after p is started, optional, within 3s or continue, on restart restart", Native, 34,
			"at the first start, stop: first-start-only optional-unsupported no-timeout restarts-not-propagated"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan(t, tt.plan)
			a := tt.by.Keeps(p, p.Edges[0], tt.on)
			got := a.Start.String()
			if a.Stop {
				got += ", stop"
			}
			got += ":"
			for _, l := range a.Limits {
				got += " " + l.Code
				if l.Fatal {
					got += "!"
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReasonsNameTheContainers(t *testing.T) {
	p := plan(t, "container proxy is plain, healthy by post-start\ncontainer app is plain\napp after proxy is healthy")
	got := Hold.Keeps(p, p.Edges[0], 34).Limits[0].Reason
	want := "app starts all the same when proxy's image is missing, proxy is in back-off, or its hook fails"
	if got != want {
		t.Errorf("reason is %q, want %q", got, want)
	}
}

func TestLimitsAreSentencesWithACode(t *testing.T) {
	for m, rule := range mechanismRules {
		for _, l := range rule.limits {
			if l.Code == "" || l.Reason == "" {
				t.Errorf("%s has a limit without code or reason: %+v", m, l.Limit)
			}
		}
	}
	if len(mechanismRules) != len(Mechanisms) {
		t.Errorf("%d mechanisms have rules, %d are listed", len(mechanismRules), len(Mechanisms))
	}
}

// Decide returns each of the decisions that matter to the gate, although Check does not distinguish them all.
func TestDecide(t *testing.T) {
	for text, want := range map[string]Decision{
		"app after cache is healthy":                         Blocked,
		"app after cache is healthy, within 21s":             Blocked,
		"app after cache is healthy, within 20s":             GivenUp,
		"app after cache is healthy, within 20s or continue": Expired,
		"app after cache is started, within 20s":             Satisfied,
	} {
		if got := plan(t, text).Edges[0].Decide(Status{Ran: true, Running: true}, 20*time.Second); got != want || got.Open() != (want == Satisfied || want == Expired) {
			t.Errorf("%s: the decision is %d, want %d", text, got, want)
		}
	}
}
