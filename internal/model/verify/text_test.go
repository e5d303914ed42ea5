package verify

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/startup"
)

func TestAResultAsText(t *testing.T) {
	bound := Bound{}.withDefaults()
	edge := startup.Edge{From: "proxy", To: "app", After: startup.Healthy}
	tests := map[string]struct {
		result Result
		want   string
	}{
		"holds": {
			Result{Bound: bound, Proved: 3, States: 10, Steps: 20, Depth: 5, Took: 1500 * time.Microsecond, Omitted: []string{"much"}},
			"the plan's edges hold at every start, with up to 3 faults\nexplored: 10 states, 20 steps, 5 events deep, in 2ms\n" +
				"bound: 3 faults, 200000 states, 1m0s\nleft out: much\n"},
		"holds as far as was looked": {
			Result{Bound: bound, Promise: Stops, Proved: 1, CutShort: ByStates},
			"the plan's edges hold when the pod stops, with up to 1 fault; with 2 not all states were explored: cut short by states\n" +
				"explored: 0 states, 0 steps, 0 events deep, in 0s\nbound: 3 faults, 200000 states, 1m0s\n"},
		"nothing is known": {
			Result{Bound: bound, Proved: -1, CutShort: Cancelled},
			"nothing found, but not all states were explored: cut short by cancelled\n" +
				"explored: 0 states, 0 steps, 0 events deep, in 0s\nbound: 3 faults, 200000 states, 1m0s\n"},
		"broken": {
			Result{Bound: Bound{Faults: 1, Depth: 9, States: 5, Time: time.Second, Settled: true, Only: []Fault{Crash}}, Faults: []string{"proxy crashes"},
				Counterexample: startup.Timeline{{Container: "app", What: startup.IsStarted}},
				Violations:     []startup.Violation{{Edge: edge, How: startup.RanTooEarly, By: startup.Forever}, {Edge: edge, How: startup.RanTooEarly, By: time.Second}}},
			"broken: app after proxy is healthy: ran-too-early\nbroken: app after proxy is healthy: ran-too-early, by 1s\nfaults: proxy crashes\n" +
				"   0.000s app              started\nexplored: 0 states, 0 steps, 0 events deep, in 0s\n" +
				"bound: 1 fault of [crash] once every container has run, 9 events, 5 states, 1s\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.result.String()); diff != "" {
				t.Errorf("String (-want +got):\n%s", diff)
			}
		})
	}
}
