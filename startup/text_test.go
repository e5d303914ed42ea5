package startup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got := plan(t, `
# the mesh's proxy
container proxy is sidecar, healthy by post-start
container app is plain, restart never, healthy by readiness-probe, needs proxy cache, outlives proxy  # two
app after proxy is healthy, by native
app after cache is completed, optional, within 1m30s or continue, on restart notify
* after proxy is started
`)
	want := Plan{
		Containers: []Container{
			{Name: "proxy", Kind: Sidecar, Health: PostStart},
			{Name: "app", Restart: Never, Health: ReadinessProbe, HealthNeeds: []string{"proxy", "cache"}, Outlives: []string{"proxy"}},
		},
		Edges: []Edge{
			{To: "app", From: "proxy", After: Healthy, By: Native},
			{To: "app", From: "cache", After: Completed, Optional: true, Timeout: 90 * time.Second, OnTimeout: Continue, OnRestart: Notify},
			{To: "*", From: "proxy", After: Started},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
}

func TestParseNamesTheMistake(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"a word of Kubernetes":       {"app after proxy is ready", `line 1: "ready" is none of started, healthy, completed; did you mean healthy?`},
		"a word of Compose's file":   {"\napp after db is service_healthy", `line 2: "service_healthy" is none of started, healthy, completed; did you mean healthy?`},
		"no statement":               {"app needs proxy", `line 1: "app needs proxy" is neither "container NAME is KIND" nor "NAME after NAME is CONDITION"`},
		"a clause of something else": {"app after db is started, healthy by magic", `line 1: "healthy by magic" is no option of an edge: want optional, within, on restart or by`},
		"a name that no pod can have": {"App after db is started",
			`line 1: "App" cannot be the name of a container: small letters, digits and '-', at most 63`},
		"no time at all":       {"a after b is started, within 0s", `line 1: a timeout of 0s ends before it begins`},
		"a mechanism misspelt": {"a after b is started, by gat", `line 1: "gat" is none of init, gate, native, hold, wrapper, health-loop, bounded-loop, post-start-probe, sleep; did you mean gate?`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tt.text)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The text that String returns for a plan is parsed into an equal plan. And no plan, however senseless, makes any
// function of the package panic or run forever.
func FuzzParse(f *testing.F) {
	f.Add("container proxy is sidecar, healthy by startup-probe\napp after proxy is healthy, within 20s or continue")
	f.Add("* after proxy is healthy\nproxy after * is started\n* after * is completed")
	f.Add("container a is init, restart on-failure, needs b a\ncontainer b is plain\na after b is completed, on restart restart, by hold, optional")
	f.Add("a after b is started\nb after a is started")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(p.String())
		if err != nil {
			t.Fatalf("String wrote what Parse does not read: %v\n%s", err, p)
		}
		if diff := cmp.Diff(p, again); diff != "" {
			t.Fatalf("round trip (-first +second):\n%s", diff)
		}
		if len(p.Containers) > 12 || len(p.Edges) > 24 {
			return
		}
		valid := p.Validate(34).Err() == nil
		if _, err := p.StartOrder(); valid && err != nil {
			t.Fatalf("a valid plan has no order: %v\n%s", err, p)
		}
		Check(p, Timeline{{"a", IsStarted, 1, 0, ""}, {"b", HasFailed, 2, 0, ""}, {"", PodDeleted, 3, 0, ""}, {"a", IsCompleted, 4, 0, ""}})
	})
}

// ParseEdge returns an error for any text that is not the statement of exactly one edge.
func TestParseEdge(t *testing.T) {
	want := Edge{To: "app", From: "cache", After: Healthy, Timeout: 20 * time.Second}
	if e, err := ParseEdge("app after cache is healthy, within 20s"); e != want || err != nil {
		t.Errorf("ParseEdge = %v, %v, want %v", e, err, want)
	}
	for _, statement := range []string{"", "app after cache", "container after is plain", "a after b is started\nb after c is started", "a after b is started # and c"} {
		if e, err := ParseEdge(statement); err == nil {
			t.Errorf("ParseEdge(%q) = %v, want an error", statement, e)
		}
	}
}
