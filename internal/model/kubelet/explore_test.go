package kubelet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A node is a state that a path of events leads to.
type node struct {
	state  State
	faults int // how many more things may go wrong
	path   []Event
}

// explore tries every order in which a pod's world can answer, with so many
// faults (a crash, an image that is not there, a hook that fails) at any place,
// and returns the shortest path to an action that is bad, or nil, and the number
// of states.
func explore(t *testing.T, p Pod, faults int, bad func(State, Action) bool) ([]Event, int) {
	seen := map[string]bool{}
	queue := []node{{state: New(p, Minor(34)), faults: faults}}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		if len(seen) > 200_000 {
			t.Fatal("too many states")
		}
		for _, e := range possible(n) {
			after, actions := n.state.Step(e)
			path := append(n.path[:len(n.path):len(n.path)], e)
			for _, a := range actions {
				if bad(after, a) {
					return path, len(seen)
				}
			}
			next := node{after, n.faults, path}
			if isFault(e) {
				next.faults--
			}
			key := fmt.Sprint(next.faults, after.Key())
			if !seen[key] {
				seen[key] = true
				queue = append(queue, next)
			}
		}
	}
	return nil, len(seen)
}

func possible(n node) []Event {
	now := n.state.Now()
	if n.path == nil {
		return []Event{{Kind: Added}}
	}
	var events []Event
	for _, a := range n.state.Open() {
		for _, ok := range []bool{true, false} {
			e, _ := a.Answer(now, ok)
			events = append(events, e)
		}
	}
	for _, name := range n.state.Running() {
		events = append(events, Event{At: now, Kind: Exited, Container: name, Code: 1})
	}
	if n.faults == 0 {
		events = slices.DeleteFunc(events, isFault)
	}
	if at, ok := n.state.Next(); ok {
		events = append(events, Event{At: at, Kind: Tick})
	}
	return events
}

func isFault(e Event) bool {
	return e.Kind == Exited && e.Code == 1 || e.Kind != Exited && e.Kind != Tick && e.Kind != Added && !e.OK
}

func TestEveryInterleaving(t *testing.T) {
	proxyFirst := func(s State, a Action) bool {
		return a.Kind == Pull && a.Container == "app" && !s.View("proxy").Running
	}
	native := func(p Container, rest ...Container) Pod {
		return Pod{Init: []Container{p}, Containers: rest}
	}
	tests := map[string]struct {
		pod    Pod
		faults int
		want   string // the kinds of the shortest path to an app without proxy
	}{
		"no order at all": {
			Pod{Containers: []Container{{Name: "app"}, {Name: "proxy"}}}, 0,
			"added sandbox-ready"},
		"a hold, where nothing goes wrong": {
			Pod{Containers: []Container{{Name: "proxy", PostStart: Exec}, {Name: "app"}}}, 0, ""},
		"a hold whose image is missing": {
			Pod{Containers: []Container{{Name: "proxy", PostStart: Exec}, {Name: "app"}}}, 1,
			"added sandbox-ready pulled"},
		"a native sidecar, where nothing goes wrong": {
			native(nativeProxy, Container{Name: "app"}), 0, ""},
		"a native sidecar and one app: the kubelet never decides on the app without it": {
			native(nativeProxy, Container{Name: "app"}), 3, ""},
		"a native sidecar and two apps": {
			native(nativeProxy, Container{Name: "app"}, Container{Name: "web"}), 3,
			"added sandbox-ready pulled started tick pulled started pulled started exited tick pulled"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path, states := explore(t, tt.pod, tt.faults, proxyFirst)
			var kinds []string
			for _, e := range path {
				kinds = append(kinds, string(e.Kind))
			}
			t.Logf("%d states", states)
			if got := strings.Join(kinds, " "); got != tt.want {
				t.Errorf("path is %q, want %q\n%v", got, tt.want, path)
			}
		})
	}
}
