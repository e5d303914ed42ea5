package startup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func plan(t testing.TB, text string) Plan {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func TestCheck(t *testing.T) {
	type broken struct {
		Edge int
		How  Breach
		At   time.Duration
		Inc  int
		By   time.Duration
	}
	tests := map[string]struct {
		plan     string
		timeline Timeline
		want     []broken
	}{
		"app runs 1.5s too early": {
			plan:     "app after proxy is healthy",
			timeline: Timeline{{"app", IsStarted, at(0.5), 0, ""}, {"proxy", IsHealthy, at(2), 0, ""}},
			want:     []broken{{0, RanTooEarly, at(0.5), 0, at(1.5)}},
		},
		"app waits, and the plan is kept": {
			plan:     "app after proxy is healthy",
			timeline: Timeline{{"proxy", IsHealthy, at(2), 0, ""}, {"app", IsStarted, at(2), 0, ""}},
		},
		"an app that never started violates nothing": {
			plan:     "app after proxy is healthy",
			timeline: Timeline{{"app", IsWaiting, at(0), 0, ""}, {"proxy", HasFailed, at(2), 0, ""}},
		},
		"the proxy never comes": {
			plan:     "app after proxy is healthy",
			timeline: Timeline{{"app", IsStarted, at(1), 0, ""}},
			want:     []broken{{0, RanTooEarly, at(1), 0, Forever}},
		},
		"the app is restarted while the proxy is down": {
			plan: "app after proxy is healthy",
			timeline: Timeline{
				{"proxy", IsStarted, at(0), 0, ""}, {"proxy", IsHealthy, at(1), 0, ""}, {"app", IsStarted, at(1), 0, ""},
				{"proxy", HasFailed, at(5), 0, ""}, {"app", HasFailed, at(6), 0, ""}, {"app", IsStarted, at(7), 1, ""},
				{"proxy", IsStarted, at(8), 1, ""}, {"proxy", IsHealthy, at(9), 1, ""}},
			want: []broken{{0, RanTooEarly, at(7), 1, at(2)}},
		},
		"a proxy that is unhealthy again does not count": {
			plan: "app after proxy is healthy",
			timeline: Timeline{{"proxy", IsStarted, at(0), 0, ""}, {"proxy", IsHealthy, at(1), 0, ""},
				{"proxy", IsUnhealthy, at(2), 0, ""}, {"app", IsStarted, at(3), 0, ""}},
			want: []broken{{0, RanTooEarly, at(3), 0, Forever}},
		},
		"what completed once stays completed, but not in a new sandbox": {
			plan: "app after migrate is completed",
			timeline: Timeline{{"migrate", IsStarted, at(0), 0, ""}, {"migrate", IsCompleted, at(1), 0, ""}, {"app", IsStarted, at(2), 0, ""},
				{"app", HasFailed, at(3), 0, ""}, {"app", IsStarted, at(4), 1, ""},
				{"", NewSandbox, at(5), 0, ""}, {"app", IsStarted, at(6), 2, ""}},
			want: []broken{{0, RanTooEarly, at(6), 2, Forever}},
		},
		"an optional dependency that failed holds nobody": {
			plan:     "app after cache is healthy, optional",
			timeline: Timeline{{"cache", IsStarted, at(0), 0, ""}, {"cache", HasFailed, at(1), 0, ""}, {"app", IsStarted, at(2), 0, ""}},
		},
		"an optional dependency that is still starting holds": {
			plan:     "app after cache is healthy, optional",
			timeline: Timeline{{"cache", IsStarted, at(0), 0, ""}, {"app", IsStarted, at(2), 0, ""}},
			want:     []broken{{0, RanTooEarly, at(2), 0, Forever}},
		},
		"an optional dependency that the pod does not have holds nobody": {
			plan:     "app after cache is healthy, optional",
			timeline: Timeline{{"app", IsStarted, at(2), 0, ""}},
		},
		"after its timeout the app may go on": {
			plan:     "app after cache is healthy, within 20s or continue",
			timeline: Timeline{{"app", IsWaiting, at(1), 0, ""}, {"app", IsStarted, at(21), 0, ""}},
		},
		"before its timeout the app may not": {
			plan:     "app after cache is healthy, within 20s or continue",
			timeline: Timeline{{"app", IsWaiting, at(2), 0, ""}, {"app", IsStarted, at(21), 0, ""}},
			want:     []broken{{0, RanTooEarly, at(21), 0, Forever}},
		},
		"the wait of a restarted app begins at its end": {
			plan: "app after cache is healthy, within 20s or continue",
			timeline: Timeline{{"app", IsStarted, at(20), 0, ""}, {"app", HasFailed, at(30), 0, ""},
				{"app", IsStarted, at(40), 1, ""}},
			want: []broken{{0, RanTooEarly, at(40), 1, Forever}},
		},
		"a timeout that fails lets nobody through": {
			plan:     "app after cache is healthy, within 20s",
			timeline: Timeline{{"app", IsStarted, at(30), 0, ""}},
			want:     []broken{{0, RanTooEarly, at(30), 0, Forever}},
		},
		"the proxy leaves before the app when the pod stops": {
			plan: "app after proxy is healthy",
			timeline: Timeline{{"proxy", IsStarted, at(0), 0, ""}, {"proxy", IsHealthy, at(0), 0, ""}, {"app", IsStarted, at(1), 0, ""},
				{"", PodDeleted, at(5), 0, ""}, {"proxy", IsCompleted, at(5), 0, ""}, {"app", IsCompleted, at(8), 0, ""}},
			want: []broken{{0, OutlivedFrom, at(5), 0, at(3)}},
		},
		"the proxy leaves after the app": {
			plan: "app after proxy is healthy",
			timeline: Timeline{{"proxy", IsStarted, at(0), 0, ""}, {"proxy", IsHealthy, at(0), 0, ""}, {"app", IsStarted, at(1), 0, ""},
				{"", PodDeleted, at(5), 0, ""}, {"app", IsCompleted, at(8), 0, ""}, {"proxy", IsCompleted, at(8), 0, ""}},
		},
		"a crash of the proxy is no breach by itself": {
			plan: "app after proxy is healthy",
			timeline: Timeline{{"proxy", IsStarted, at(0), 0, ""}, {"proxy", IsHealthy, at(0), 0, ""}, {"app", IsStarted, at(1), 0, ""},
				{"proxy", HasFailed, at(5), 0, ""}, {"proxy", IsStarted, at(6), 1, ""}},
		},
		"an app that should be restarted with its proxy is not": {
			plan: "app after proxy is started, on restart restart",
			timeline: Timeline{{"proxy", IsStarted, at(0), 0, ""}, {"app", IsStarted, at(1), 0, ""},
				{"proxy", HasFailed, at(5), 0, ""}, {"proxy", IsStarted, at(6), 1, ""}},
			want: []broken{{0, NotFollowed, at(6), 0, Forever}},
		},
		"an app that was told of the restart": {
			plan: "app after proxy is started, on restart notify",
			timeline: Timeline{{"proxy", IsStarted, at(0), 0, ""}, {"app", IsStarted, at(1), 0, ""},
				{"proxy", HasFailed, at(5), 0, ""}, {"proxy", IsStarted, at(6), 1, ""}, {"app", IsNotified, at(6), 0, ""}},
		},
		"violations come in the order of the edges, not of time": {
			plan:     "app after cache is started\nweb after cache is started\n",
			timeline: Timeline{{"web", IsStarted, at(1), 0, ""}, {"app", IsStarted, at(2), 0, ""}},
			want:     []broken{{0, RanTooEarly, at(2), 0, Forever}, {1, RanTooEarly, at(1), 0, Forever}},
		},
		"a star covers every container": {
			plan: "container proxy is sidecar, healthy by post-start\ncontainer a is plain\ncontainer b is plain\n* after proxy is healthy",
			timeline: Timeline{{"a", IsStarted, at(1), 0, ""}, {"proxy", IsStarted, at(2), 0, ""}, {"proxy", IsHealthy, at(2), 0, ""},
				{"b", IsStarted, at(3), 0, ""}},
			want: []broken{{0, RanTooEarly, at(1), 0, at(1)}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan(t, tt.plan)
			expanded := p.Expand().Edges
			var want []Violation
			for _, b := range tt.want {
				want = append(want, Violation{expanded[b.Edge], b.How, b.At, b.Inc, b.By})
			}
			if diff := cmp.Diff(want, Check(p, tt.timeline)); diff != "" {
				t.Errorf("Check (-want +got):\n%s\n%s", diff, tt.timeline)
			}
		})
	}
}
