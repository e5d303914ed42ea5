package startup

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStartAndStopOrder(t *testing.T) {
	tests := map[string]struct{ plan, want string }{
		"without edges, the pod's order": {"container a is plain\ncontainer b is plain", "a b"},
		"a chain":                        {"a after b is started\nb after c is started", "c b a"},
		"of several that could come next, the pod's order": {
			"container d is plain\ncontainer c is plain\ncontainer b is plain\ncontainer a is plain\nd after a is started", "c b a d"},
		"everything after the proxy":     {"container a is plain\ncontainer b is plain\ncontainer proxy is plain\n* after proxy is started", "proxy a b"},
		"one after everything":           {"container a is plain\ncontainer b is plain\ncontainer c is plain\na after * is started", "b c a"},
		"a dependency that is not there": {"container a is plain\na after b is started, optional", "a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan(t, tt.plan)
			start, err := p.StartOrder()
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(start, " "); got != tt.want {
				t.Errorf("start order is %q, want %q", got, tt.want)
			}
			stop, _ := p.StopOrder()
			slices.Reverse(stop)
			if diff := cmp.Diff(start, stop); diff != "" {
				t.Errorf("the stop order is not the reverse (-start +stop reversed):\n%s", diff)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	tests := map[string]struct{ plan, want string }{
		"a star is every other container": {
			"container proxy is sidecar\ncontainer a is plain\ncontainer b is plain\n* after proxy is started, by gate",
			"a after proxy is started, by gate\nb after proxy is started, by gate\n"},
		"what the proxy waits for is left out": {
			"container proxy is plain\ncontainer vault is plain\ncontainer a is plain\n* after proxy is started\nproxy after vault is started",
			"a after proxy is started\nproxy after vault is started\n"},
		"what the kubelet starts before it is left out": {
			"container first is init\ncontainer proxy is sidecar\ncontainer second is init\n* after proxy is started",
			"second after proxy is started\n"},
		"an edge with two names wins": {
			"container proxy is sidecar\ncontainer a is plain\ncontainer b is plain\n* after proxy is started\na after proxy is started, optional",
			"b after proxy is started\na after proxy is started, optional\n"},
		"a star on the other side": {
			"container a is plain\ncontainer b is plain\ncontainer last is plain\nlast after * is started",
			"last after a is started\nlast after b is started\n"},
	}
	proxied := plan(t, "container proxy is plain\ncontainer a is plain\ncontainer b is plain\n* after a is started")
	proxied.Containers[0].Named = true
	if got, want := (Plan{Edges: proxied.Expand().Edges}).String(), "b after a is started\n"; got != want {
		t.Errorf("beside what waits only by its name: %q, want %q", got, want)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Plan{Edges: plan(t, tt.plan).Expand().Edges}.String()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Expand (-want +got):\n%s", diff)
			}
		})
	}
}
