package startup

import (
	"slices"
	"testing"
)

func TestDeadlock(t *testing.T) {
	agent, web, cache := Container{Name: "agent", Health: PostStart}, Container{Name: "web"}, Container{Name: "cache"}
	side, first := Container{Name: "side", Kind: Sidecar, Health: StartupProbe}, Container{Name: "first", Kind: Sidecar}
	held := Edge{From: "agent", To: "web", After: Healthy, By: Hold}
	needs := Edge{From: "cache", To: "agent", After: Started, By: Gate}
	for name, c := range map[string]struct {
		containers []Container
		edges      []Edge
		path       []string // nil: it starts
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
