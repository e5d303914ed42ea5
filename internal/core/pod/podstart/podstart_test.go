package podstart

import (
	"slices"
	"strings"
	"testing"

	"outrider.dev/startup"
)

// reading returns a reading of a pod that requests the given edges and already has the edges in found.
func reading(t *testing.T, requested string, found ...string) Reading {
	t.Helper()
	const containers = "container a is init\ncontainer b is init\ncontainer proxy is sidecar, healthy by startup-probe\ncontainer app is plain\n"
	p, err := startup.Parse(containers + requested)
	if err != nil {
		t.Fatal(err)
	}
	r := Reading{Containers: p.Containers, Requested: p.Edges, Facts: map[string]Fact{}}
	for _, text := range found {
		e, err := startup.ParseEdge(text)
		if err != nil {
			t.Fatal(err)
		}
		r.Found = append(r.Found, Found{Mechanism: e.By, Edges: []startup.Edge{e}})
	}
	return r
}

// Plan returns the requested edges with the best mechanisms that keep them, and then the other edges.
func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		requested string
		found     []string
		want      string
	}{
		"kept by the better of two": {"app after proxy is healthy", []string{"app after proxy is healthy, by sleep", "app after proxy is healthy, by native"},
			"app after proxy is healthy, by native"},
		"healthy is started too":          {"app after proxy is started", []string{"app after proxy is healthy, by native"}, "app after proxy is started, by native"},
		"started is not healthy":          {"app after proxy is healthy", []string{"app after proxy is started, by native"}, "app after proxy is healthy"},
		"a loop that gives up keeps none": {"app after proxy is healthy", []string{"app after proxy is healthy, by bounded-loop"}, "app after proxy is healthy"},
		"the mechanism that it names":     {"app after proxy is healthy, by gate", []string{"app after proxy is healthy, by native"}, "app after proxy is healthy, by gate"},
		"not requested":                   {"", []string{"app after proxy is healthy, by sleep", "app after proxy is healthy, by native"}, "app after proxy is healthy, by native"},
		"a sleep gives way to a cycle":    {"proxy after app is started", []string{"app after proxy is healthy, by sleep"}, "proxy after app is started"},
		"a gate does not":                 {"proxy after app is started", []string{"app after proxy is healthy, by gate"}, "proxy after app is started; app after proxy is healthy, by gate"},
	} {
		var got []string
		for _, e := range reading(t, test.requested, test.found...).Plan().Edges {
			got = append(got, e.String())
		}
		if strings.Join(got, "; ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// An expected container is at the position where injection puts it. Expecting does not change its receiver.
func TestExpecting(t *testing.T) {
	for requested, want := range map[string]string{
		"app after late is healthy": "a b proxy late app",
		"b after late is healthy":   "a late b proxy app",
	} {
		r := reading(t, requested)
		var names []string
		for _, c := range r.Expecting("late").ContainerPlan().Containers {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != want || len(r.Expected) > 0 || len(r.Facts) > 0 {
			t.Errorf("%s: %q, then expected %q, want %q", requested, got, r.Expected, want)
		}
	}
}

func TestMeant(t *testing.T) {
	for text, want := range map[string]startup.Condition{
		"app after proxy is started, by health-loop": startup.Healthy,
		"app after proxy is started, by native":      startup.Started,
		"app after a is started, by health-loop":     startup.Started, // it reports no health
		"app after other is started, by health-loop": startup.Started, // the pod does not have it
	} {
		e, err := startup.ParseEdge(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := reading(t, "").Meant(e).After; got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestOrderForHold(t *testing.T) {
	name := func(s string) string { return s }
	e := startup.Edge{From: "proxy", To: "app"}
	list, plan := []string{"first", "app", "web", "db", "proxy", "last"}, startup.Plan{Edges: []startup.Edge{{From: "db", To: "proxy", After: startup.Started}}}
	for _, c := range list {
		plan.Containers = append(plan.Containers, startup.Container{Name: c})
	}
	got := OrderForHold(list, name, e, plan.Dependency())
	if want := []string{"first", "db", "proxy", "app", "web", "last"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
