package startcost

import (
	"testing"

	"outrider.dev/startup"
)

func TestDelayOfTheNearestVersion(t *testing.T) {
	for _, test := range []struct {
		by       startup.Mechanism
		released startup.Health
		on       startup.Kubernetes
		kubelet  string // empty: not measured
	}{
		{startup.Gate, "", 29, "v1.34.4"},
		{startup.Gate, startup.PostStart, 35, "v1.34.4"}, // for a gate the health report makes no difference
		{startup.Native, startup.StartupProbe, 0, "v1.36.3"},
		{startup.Native, startup.ReadinessProbe, 36, ""},
		{startup.Sleep, "", 36, ""},
	} {
		got := DelayOf(test.by, test.released, test.on)
		if got == nil && test.kubelet == "" {
			continue
		}
		if got == nil || got.Kubelet != test.kubelet || got.By != test.by || got.Released != "" && got.Released != test.released {
			t.Errorf("%s, %s on 1.%d: %+v, want one of kubelet %q", test.by, test.released, test.on, got, test.kubelet)
		}
	}
}

// Each table has costs for every measured version, in the order of the versions.
func TestTablesAreComplete(t *testing.T) {
	for _, on := range []startup.Kubernetes{0, 28, 34, 36, 40} {
		for _, table := range [][]Pod{Pods, MeshPods} {
			costs := On(table, on)
			if len(costs) == 0 {
				t.Errorf("no costs on 1.%d", on)
			}
			for _, c := range costs {
				if c.Min > c.Median || c.Median > c.Max || c.Kubelet != costs[0].Kubelet {
					t.Errorf("on 1.%d: %+v", on, c)
				}
			}
		}
	}
	if more, kubelet := OfRootStage(); more <= 0 || kubelet == "" {
		t.Errorf("a root stage costs %.2f s on %q", more, kubelet)
	}
}
