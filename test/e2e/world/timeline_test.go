package world

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/startup"
)

func TestEvidenceOfOneRunIsOrderedByWhatMustComeFirst(t *testing.T) {
	const ms = time.Millisecond
	plan := startup.Plan{
		Containers: []startup.Container{{Name: "proxy", Kind: startup.Sidecar, Health: startup.PostStart}, {Name: "app"}},
		Edges:      []startup.Edge{{From: "proxy", To: "app", After: startup.Healthy}},
	}
	event := func(container string, what startup.What, at time.Duration, incarnation int) startup.Event {
		return startup.Event{Container: container, What: what, At: at, Incarnation: incarnation}
	}
	tests := map[string]struct {
		seen, want startup.Timeline
	}{
		"containerd reports the start after the proxy is ready": {
			seen: startup.Timeline{
				event("proxy", startup.IsHealthy, 100*ms, 0),
				event("proxy", startup.IsStarted, 106*ms, 0),
				event("app", startup.IsStarted, 120*ms, 0),
			},
			want: startup.Timeline{
				event("proxy", startup.IsStarted, 100*ms, 0),
				event("proxy", startup.IsHealthy, 100*ms, 0),
				event("app", startup.IsStarted, 120*ms, 0),
			},
		},
		"the next run's evidence moves nothing of this one": {
			seen: startup.Timeline{
				event("proxy", startup.IsStarted, 10*ms, 0),
				event("proxy", startup.IsHealthy, 20*ms, 0),
				event("proxy", startup.HasFailed, 30*ms, 0),
				event("proxy", startup.IsHealthy, 50*ms, 1),
				event("proxy", startup.IsStarted, 55*ms, 1),
				event("app", startup.IsStarted, 60*ms, 0),
			},
			want: startup.Timeline{
				event("proxy", startup.IsStarted, 10*ms, 0),
				event("proxy", startup.IsHealthy, 20*ms, 0),
				event("proxy", startup.HasFailed, 30*ms, 0),
				event("proxy", startup.IsStarted, 50*ms, 1),
				event("proxy", startup.IsHealthy, 50*ms, 1),
				event("app", startup.IsStarted, 60*ms, 0),
			},
		},
		"an exit is not before the last line of the run": {
			seen: startup.Timeline{
				event("proxy", startup.IsStarted, 10*ms, 0),
				event("proxy", startup.IsHealthy, 20*ms, 0),
				event("app", startup.IsStarted, 30*ms, 0),
				event("app", startup.IsCompleted, 40*ms, 0),
				event("app", startup.IsStopping, 41*ms, 0),
			},
			want: startup.Timeline{
				event("proxy", startup.IsStarted, 10*ms, 0),
				event("proxy", startup.IsHealthy, 20*ms, 0),
				event("app", startup.IsStarted, 30*ms, 0),
				event("app", startup.IsStopping, 41*ms, 0),
				event("app", startup.IsCompleted, 41*ms, 0),
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := causal(tt.seen)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("causal (-want +got):\n%s", diff)
			}
			if v := startup.Check(plan, got); len(v) > 0 {
				t.Errorf("an order that was kept is judged broken: %+v", v)
			}
		})
	}
}
