package startup

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		plan string
		want []string // code: names
	}{
		"a plan without fault": {
			plan: "container proxy is sidecar, healthy by startup-probe\ncontainer app is plain\napp after proxy is healthy, by gate",
		},
		"two containers that wait for one another": {
			plan: "app after proxy is started\nproxy after app is started",
			want: []string{"cycle: app proxy app"},
		},
		"a container that waits for itself": {
			plan: "app after app is healthy",
			want: []string{"cycle: app app"},
		},
		"a cycle that a star closes": {
			plan: "container a is plain\ncontainer b is plain\na after * is started\nb after * is started",
			want: []string{"cycle: a b a"},
		},
		"a name with a letter too many": {
			plan: "container proxy is sidecar\ncontainer app is plain\napp after proxyy is started",
			want: []string{"unknown-container: proxyy"},
		},
		"an optional dependency may be missing": {
			plan: "container app is plain\napp after cache is healthy, optional",
		},
		"an init container that waits for a plain container": {
			plan: "container migrate is init\ncontainer db is plain, healthy by readiness-probe\nmigrate after db is healthy",
			want: []string{"unsatisfiable-edge: migrate db"},
		},
		"an init container that waits for a later sidecar": {
			plan: "container migrate is init\ncontainer proxy is sidecar\nmigrate after proxy is started",
			want: []string{"unsatisfiable-edge: migrate proxy"},
		},
		"a sidecar may wait for a plain container, in a gate": {
			plan: "container shipper is sidecar\ncontainer app is plain\nshipper after app is started",
		},
		"but not when the kubelet holds the pod for its probe": {
			plan: "container shipper is sidecar, healthy by startup-probe\ncontainer app is plain\nshipper after app is started",
			want: []string{"unsatisfiable-edge: shipper app"},
		},
		"a held container that waits for a later one": {
			plan: "container proxy is plain, healthy by post-start\ncontainer app is plain\nproxy after app is started",
			want: []string{"unsatisfiable-edge: proxy app"},
		},
		"a proxy whose readiness probes the app that waits for it": {
			plan: "container proxy is sidecar, healthy by readiness-probe, needs app\ncontainer app is plain\napp after proxy is healthy",
			want: []string{"probe-cycle: app proxy app"},
		},
		"a probe that waits by way of another container": {
			plan: "container proxy is plain, healthy by report, needs web\ncontainer app is plain\ncontainer web is plain\n" +
				"app after proxy is healthy\nweb after app is started",
			want: []string{"probe-cycle: app proxy web app", "probe-cycle: web app proxy web"},
		},
		"healthy without anything that reports it": {
			plan: "container db is plain\ncontainer app is plain\napp after db is healthy",
			want: []string{"never-healthy: app db"},
		},
		"completed, of a container that the kubelet restarts": {
			plan: "container job is plain\ncontainer app is plain\napp after job is completed",
			want: []string{"never-completes: app job"},
		},
		"completed, in a Job": {
			plan: "container job is plain, restart never\ncontainer app is plain, restart never\napp after job is completed",
		},
		"a duplicate name": {
			plan: "container app is plain\ncontainer app is init",
			want: []string{"duplicate-name: app"},
		},
		"one edge twice": {
			plan: "app after db is started\napp after db is healthy",
			want: []string{"duplicate-edge: app db"},
		},
		"a star that cannot cover an earlier init container": {
			plan: "container migrate is init\ncontainer proxy is plain, healthy by post-start\ncontainer app is plain\n* after proxy is healthy",
			want: []string{"wildcard-incomplete: migrate"},
		},
		"everything after everything": {
			plan: "container a is plain\n* after * is started",
			want: []string{"cycle: * *"},
		},
		"a mechanism that cannot keep the edge": {
			plan: "container proxy is plain, healthy by post-start\ncontainer app is plain\napp after proxy is healthy, by native",
			want: []string{"unsuitable-mechanism: app proxy"},
		},
		"a mechanism that keeps the first start only": {
			plan: "container proxy is plain, healthy by post-start\ncontainer app is plain\napp after proxy is healthy, by hold",
			want: []string{"not-every-start: app proxy"},
		},
		"a guess": {
			plan: "container proxy is plain, healthy by report\ncontainer app is plain\napp after proxy is healthy, by sleep",
			want: []string{"not-every-start: app proxy"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range plan(t, tt.plan).Validate(34) {
				got = append(got, string(f.Code)+": "+strings.Join(f.Names, " "))
				if f.Level == Error && f.Remedy == "" {
					t.Errorf("%s has no remedy", f.Message)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Validate (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFindingsHaveAMessageAndARemedy(t *testing.T) {
	got := plan(t, "container migrate is init\ncontainer db is plain, healthy by report\nmigrate after db is healthy").Validate(34)
	want := Finding{Code: UnsatisfiableEdge, Level: Error, Names: []string{"migrate", "db"},
		Edge:    &Edge{From: "db", To: "migrate", After: Healthy},
		Message: "migrate waits for db, but the kubelet comes to db only after migrate: no mechanism can keep this",
		Remedy:  "make db a sidecar (restartPolicy: Always) that is listed before migrate, or make migrate a plain container"}
	if diff := cmp.Diff(Findings{want}, got); diff != "" {
		t.Errorf("Validate (-want +got):\n%s", diff)
	}
}

func TestACycleIsACycleError(t *testing.T) {
	p := plan(t, "a after b is started\nb after c is started\nc after a is started")
	var fromFindings, fromOrder *CycleError
	if err := p.Validate(0).Err(); !errors.As(err, &fromFindings) {
		t.Fatalf("Validate: %v is no CycleError", err)
	}
	if _, err := p.StartOrder(); !errors.As(err, &fromOrder) {
		t.Fatalf("StartOrder: %v is no CycleError", err)
	}
	want := &CycleError{Path: []string{"a", "b", "c", "a"}}
	if diff := cmp.Diff(want, fromFindings); diff != "" {
		t.Errorf("Validate (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, fromOrder); diff != "" {
		t.Errorf("StartOrder (-want +got):\n%s", diff)
	}
}

func TestUnknownWordsInAPlanMadeByHand(t *testing.T) {
	p := Plan{
		Containers: []Container{{Name: "App", Kind: "initt"}, {Name: "db", Kind: "plain"}},
		Edges:      []Edge{{From: "db", To: "App", After: "ready", Timeout: -1, By: "hope"}},
	}
	var got []string
	for _, f := range p.Validate(0) {
		got = append(got, string(f.Code)+": "+f.Message)
	}
	want := []string{
		`invalid-name: "App" cannot be the name of a container: small letters, digits and '-', at most 63`,
		`unsupported-value: App: "initt" is none of plain, init, sidecar; did you mean init?`,
		`unsupported-value: db: "plain" is the default, whose value is the empty string`,
		`unsupported-value: App: "ready" is none of started, healthy, completed; did you mean healthy?`,
		`unsupported-value: App: "hope" is none of init, gate, native, hold, wrapper, health-loop, bounded-loop, post-start-probe, sleep`,
		`invalid-timeout: App waits for a negative time: -1ns`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Validate (-want +got):\n%s", diff)
	}
}

// The graph of waits grows only linearly with the plan. This matters because the webhook validates plans of any
// size.
func TestTheGraphIsAsLongAsThePlan(t *testing.T) {
	for _, kind := range []Kind{Plain, Init, Sidecar} {
		const n = 600
		var p Plan
		for i := range n {
			p.Containers = append(p.Containers, Container{Name: fmt.Sprintf("c%d", i), Kind: kind})
		}
		arcs := 0
		for _, on := range p.waits(everyWait).graph {
			arcs += len(on)
		}
		if arcs > 10*n {
			t.Errorf("%d arcs for %d containers of kind %q", arcs, n, kind)
		}
		last := point{fmt.Sprintf("c%d", n-1), running}
		if p.waits(listOrder).path(last, point{"c0", spawned}) == nil {
			t.Errorf("%q: the last one does not wait for the first", kind)
		}
	}
}
