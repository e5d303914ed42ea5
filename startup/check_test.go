package startup

import (
	"slices"
	"strconv"
	"strings"
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

// parseTimeline reads "SECONDS CONTAINER EVENT #INCARNATION, ...". An entry without a container is an event
// of the pod.
func parseTimeline(t testing.TB, text string) (out Timeline) {
	t.Helper()
	for item := range strings.SplitSeq(text, ",") {
		var ev Event
		words := strings.Fields(item)
		seconds, err := strconv.ParseFloat(words[0], 64)
		if last := words[len(words)-1]; strings.HasPrefix(last, "#") && err == nil {
			ev.Incarnation, err = strconv.Atoi(last[1:])
			words = words[:len(words)-1]
		}
		if err != nil {
			t.Fatalf("%q: %v", item, err)
		}
		ev.At, ev.What = at(seconds), What(words[len(words)-1])
		if len(words) == 3 {
			ev.Container = words[1]
		}
		out = append(out, ev)
	}
	return out
}

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
		timeline string
		want     []broken
	}{
		"app runs 1.5s too early": {
			plan:     "app after proxy is healthy",
			timeline: "0.5 app started, 2 proxy healthy",
			want:     []broken{{0, StartedTooEarly, at(0.5), 0, at(1.5)}},
		},
		"app waits, and the plan is kept": {
			plan:     "app after proxy is healthy",
			timeline: "2 proxy healthy, 2 app started",
		},
		"an app that never started violates nothing": {
			plan:     "app after proxy is healthy",
			timeline: "0 app waiting, 2 proxy failed",
		},
		"the proxy never comes": {
			plan:     "app after proxy is healthy",
			timeline: "1 app started",
			want:     []broken{{0, StartedTooEarly, at(1), 0, Forever}},
		},
		"the app is restarted while the proxy is down": {
			plan:     "app after proxy is healthy",
			timeline: "0 proxy started, 1 proxy healthy, 1 app started, 5 proxy failed, 6 app failed, 7 app started #1, 8 proxy started #1, 9 proxy healthy #1",
			want:     []broken{{0, StartedTooEarly, at(7), 1, at(2)}},
		},
		"a proxy that is unhealthy again does not count": {
			plan:     "app after proxy is healthy",
			timeline: "0 proxy started, 1 proxy healthy, 2 proxy unhealthy, 3 app started",
			want:     []broken{{0, StartedTooEarly, at(3), 0, Forever}},
		},
		"what completed once stays completed, but not in a new sandbox": {
			plan:     "app after migrate is completed",
			timeline: "0 migrate started, 1 migrate completed, 2 app started, 3 app failed, 4 app started #1, 5 sandbox, 6 app started #2",
			want:     []broken{{0, StartedTooEarly, at(6), 2, Forever}},
		},
		"an optional dependency that failed holds nothing": {
			plan:     "app after cache is healthy, optional",
			timeline: "0 cache started, 1 cache failed, 2 app started",
		},
		"an optional dependency that is still starting holds": {
			plan:     "app after cache is healthy, optional",
			timeline: "0 cache started, 2 app started",
			want:     []broken{{0, StartedTooEarly, at(2), 0, Forever}},
		},
		"an optional dependency that the pod does not have holds nothing": {
			plan:     "app after cache is healthy, optional",
			timeline: "2 app started",
		},
		"after its timeout the app may go on": {
			plan:     "app after cache is healthy, within 20s or continue",
			timeline: "1 app waiting, 21 app started",
		},
		"before its timeout the app may not": {
			plan:     "app after cache is healthy, within 20s or continue",
			timeline: "2 app waiting, 21 app started",
			want:     []broken{{0, StartedTooEarly, at(21), 0, Forever}},
		},
		"the wait of a restarted app begins at its end": {
			plan:     "app after cache is healthy, within 20s or continue",
			timeline: "20 app started, 30 app failed, 40 app started #1",
			want:     []broken{{0, StartedTooEarly, at(40), 1, Forever}},
		},
		"a timeout that fails lets nothing through": {
			plan:     "app after cache is healthy, within 20s",
			timeline: "30 app started",
			want:     []broken{{0, StartedTooEarly, at(30), 0, Forever}},
		},
		"the proxy leaves before the app when the pod stops": {
			plan:     "app after proxy is healthy",
			timeline: "0 proxy started, 0 proxy healthy, 1 app started, 5 deleted, 5 proxy completed, 8 app completed",
			want:     []broken{{0, OutlivedDependency, at(5), 0, at(3)}},
		},
		"the proxy leaves after the app": {
			plan:     "app after proxy is healthy",
			timeline: "0 proxy started, 0 proxy healthy, 1 app started, 5 deleted, 8 app completed, 8 proxy completed",
		},
		"a crash of the proxy is no violation by itself": {
			plan:     "app after proxy is healthy",
			timeline: "0 proxy started, 0 proxy healthy, 1 app started, 5 proxy failed, 6 proxy started #1",
		},
		"an app that should be restarted with its proxy is not": {
			plan:     "app after proxy is started, on restart restart",
			timeline: "0 proxy started, 1 app started, 5 proxy failed, 6 proxy started #1",
			want:     []broken{{0, RestartNotPropagated, at(6), 0, Forever}},
		},
		"an app that was notified of the restart": {
			plan:     "app after proxy is started, on restart notify",
			timeline: "0 proxy started, 1 app started, 5 proxy failed, 6 proxy started #1, 6 app notified",
		},
		"violations come in the order of the edges, not of time": {
			plan:     "app after cache is started\nweb after cache is started\n",
			timeline: "1 web started, 2 app started",
			want:     []broken{{0, StartedTooEarly, at(2), 0, Forever}, {1, StartedTooEarly, at(1), 0, Forever}},
		},
		"the order of time counts, not that of the list": {
			plan:     "app after proxy is healthy",
			timeline: "2 app started, 1 proxy healthy",
		},
		"what completed counts as started": {
			plan:     "app after migrate is started",
			timeline: "0 migrate started, 1 migrate completed, 2 app started",
		},
		"what completed, and failed at its next run, does not count as started": {
			plan:     "app after migrate is started",
			timeline: "0 migrate started, 1 migrate completed, 2 migrate started #1, 3 migrate failed, 4 app started",
			want:     []broken{{0, StartedTooEarly, at(4), 0, Forever}},
		},
		"what failed, and then completed, counts as started": {
			plan:     "app after migrate is started",
			timeline: "0 migrate started, 1 migrate failed, 2 migrate completed #1, 3 app started",
		},
		"what failed before it ran does not count as started": {
			plan:     "app after proxy is started",
			timeline: "0 proxy started, 1 proxy failed, 2 app started",
			want:     []broken{{0, StartedTooEarly, at(2), 0, Forever}},
		},
		"what completed stays completed while it runs again": {
			plan:     "app after migrate is completed",
			timeline: "0 migrate started, 1 migrate completed, 2 migrate started #1, 3 app started",
		},
		"a proxy that restarted is not healthy yet": {
			plan:     "app after proxy is healthy",
			timeline: "0 proxy started, 1 proxy healthy, 2 proxy started #1, 3 app started",
			want:     []broken{{0, StartedTooEarly, at(3), 0, Forever}},
		},
		"what completed is not healthy": {
			plan:     "app after proxy is healthy",
			timeline: "0 proxy started, 1 proxy healthy, 2 proxy completed, 3 app started",
			want:     []broken{{0, StartedTooEarly, at(3), 0, Forever}},
		},
		"an optional dependency that restarted after a failure holds again": {
			plan:     "app after cache is healthy, optional",
			timeline: "0 cache started, 1 cache failed, 2 cache started #1, 3 app started",
			want:     []broken{{0, StartedTooEarly, at(3), 0, Forever}},
		},
		"an optional dependency that starts later holds": {
			plan:     "app after cache is healthy, optional",
			timeline: "0 app started, 1 cache started, 2 cache healthy",
			want:     []broken{{0, StartedTooEarly, at(0), 0, at(2)}},
		},
		"without a timeout nothing may go on": {
			plan:     "app after cache is healthy",
			timeline: "0 app waiting, 900 app started",
			want:     []broken{{0, StartedTooEarly, at(900), 0, Forever}},
		},
		"a wait begins anew in a new sandbox": {
			plan:     "app after cache is healthy, within 20s or continue",
			timeline: "0 app waiting, 15 sandbox, 21 app started",
			want:     []broken{{0, StartedTooEarly, at(21), 0, Forever}},
		},
		"what ran in an earlier sandbox does not outlive anything": {
			plan:     "app after proxy is started",
			timeline: "0 proxy started, 1 app started, 2 sandbox, 3 deleted, 4 proxy failed",
		},
		"both leave at the same time": {
			plan:     "app after proxy is healthy",
			timeline: "0 proxy started, 0 proxy healthy, 1 app started, 5 deleted, 8 proxy completed, 8 app completed",
		},
		"the proxy becomes unhealthy while the app stops": {
			plan:     "app after proxy is healthy",
			timeline: "0 proxy started, 0 proxy healthy, 1 app started, 5 deleted, 6 proxy unhealthy, 7 app completed, 8 proxy completed",
		},
		"the proxy leaves before the app, whatever else ends or happens": {
			plan:     "app after proxy is healthy",
			timeline: "0 proxy started, 0 proxy healthy, 1 app started, 5 deleted, 5 proxy completed, 6 web completed, 7 app stopping, 8 app completed",
			want:     []broken{{0, OutlivedDependency, at(5), 0, at(3)}},
		},
		"what is to complete may end before": {
			plan:     "app after migrate is completed",
			timeline: "0 migrate started, 1 migrate completed, 2 app started, 3 migrate started #1, 5 deleted, 6 migrate completed, 8 app completed",
		},
		"an app that follows a restart by its end": {
			plan:     "app after proxy is started, on restart restart",
			timeline: "0 proxy started, 1 app started, 5 proxy failed, 6 proxy started #1, 7 app failed",
		},
		"an app that is not running has nothing to follow": {
			plan:     "app after proxy is started, on restart restart",
			timeline: "0 proxy started, 1 app started, 2 app failed, 5 proxy failed, 6 proxy started #1",
		},
		"an app that should be restarted is only notified": {
			plan:     "app after proxy is started, on restart restart",
			timeline: "0 proxy started, 1 app started, 5 proxy failed, 6 proxy started #1, 7 app notified",
			want:     []broken{{0, RestartNotPropagated, at(6), 0, Forever}},
		},
		"the end of another container is not that of the app": {
			plan:     "app after proxy is started, on restart restart",
			timeline: "0 proxy started, 1 app started, 5 proxy failed, 6 proxy started #1, 7 web failed",
			want:     []broken{{0, RestartNotPropagated, at(6), 0, Forever}},
		},
		"after a deletion nothing has to follow": {
			plan:     "app after proxy is started, on restart restart",
			timeline: "0 proxy started, 1 app started, 5 proxy failed, 6 proxy started #1, 7 deleted",
		},
		"a first start is no restart": {
			plan:     "app after proxy is started, optional, on restart restart",
			timeline: "0 proxy failed, 1 app started, 2 proxy started",
		},
		"a star covers every container": {
			plan:     "container proxy is sidecar, healthy by post-start\ncontainer a is plain\ncontainer b is plain\n* after proxy is healthy",
			timeline: "1 a started, 2 proxy started, 2 proxy healthy, 3 b started",
			want:     []broken{{0, StartedTooEarly, at(1), 0, at(1)}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, timeline := plan(t, tt.plan), parseTimeline(t, tt.timeline)
			expanded := p.Expand().Edges
			var want []Violation
			for _, b := range tt.want {
				want = append(want, Violation{expanded[b.Edge], b.How, b.At, b.Inc, b.By})
			}
			if diff := cmp.Diff(want, Check(p, timeline)); diff != "" {
				t.Errorf("Check (-want +got):\n%s\n%s", diff, timeline)
			}
		})
	}
}

func TestDeadlock(t *testing.T) {
	agent, web, cache := Container{Name: "agent", Health: PostStart}, Container{Name: "web"}, Container{Name: "cache"}
	side, first := Container{Name: "side", Kind: Sidecar, Health: StartupProbe}, Container{Name: "first", Kind: Sidecar}
	held := Edge{From: "agent", To: "web", After: Healthy, By: Hold}
	needs := Edge{From: "cache", To: "agent", After: Started, By: Gate}
	for name, c := range map[string]struct {
		containers []Container
		edges      []Edge
		path       []string // nil: the pod starts
	}{
		"what a hook waits for is listed behind it":  {[]Container{agent, web, cache}, []Edge{held, needs}, []string{"agent", "cache", "web", "agent"}},
		"what a hook waits for is listed before it":  {[]Container{cache, agent, web}, []Edge{held, needs}, nil},
		"two edges close it, neither alone":          {[]Container{first, side, cache}, []Edge{{From: "cache", To: "first", After: Started, By: Gate}, {From: "first", To: "side", After: Started, By: Gate}}, []string{"first", "cache", "side", "first"}},
		"one of the two":                             {[]Container{first, side, cache}, []Edge{{From: "first", To: "side", After: Started, By: Gate}}, nil},
		"a probe that needs what the kubelet begins": {[]Container{{Name: "side", Kind: Sidecar, Health: StartupProbe, HealthNeeds: []string{"web"}}, web}, []Edge{{From: "side", To: "web", After: Healthy, By: Native}}, []string{"web", "side", "web"}},
		"the same, and no edge: it is not judged":    {[]Container{{Name: "side", Kind: Sidecar, Health: StartupProbe, HealthNeeds: []string{"web"}}, web}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Plan{Containers: c.containers, Edges: c.edges}.Deadlock()
			switch {
			case got == nil && c.path != nil:
				t.Errorf("it starts; want %v", c.path)
			case got != nil && (!slices.Equal(got.Path, c.path) || !slices.Equal(got.Edges, c.edges)):
				t.Errorf("%v, edges %v; want %v, all edges", got, got.Edges, c.path)
			}
		})
	}
}
