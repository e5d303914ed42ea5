package simulate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/startup"
)

func TestParse(t *testing.T) {
	got, err := Parse(`
# the world
kubernetes 1.34
until 90s
begins at 10ms
sandbox takes 300ms
sandbox dies at 40s
deleted at 60s
proxy: image takes 2s, healthy after 1.5s   # slow
proxy: crashes after 5s 2 times, completes after 9s
app: calls proxy after 200ms or exits 7, calls proxy every 1s, stops after 3s, killed at 8s
web: image missing, post-start asks proxy for 5s, unhealthy after 4s for 2s
`)
	if err != nil {
		t.Fatal(err)
	}
	const s = time.Second
	want := Behaviour{Kubernetes: 34, Until: 90 * s, Begins: s / 100, Sandbox: 300 * s / 1000,
		SandboxDies: []time.Duration{40 * s}, Deleted: 60 * s,
		Containers: map[string]Container{
			"proxy": {Image: 2 * s, Healthy: 1500 * s / 1000, Ends: []End{{5 * s, 1}, {5 * s, 1}, {9 * s, 0}}},
			"app": {Calls: []Call{{To: "proxy", After: s / 5, Exits: true, Code: 7}, {To: "proxy", After: s, Every: s}},
				Stops: 3 * s, KilledAt: []time.Duration{8 * s}},
			"web": {MissingUntil: Forever, PostStart: Hook{Takes: 5 * s, Polls: "proxy"}, Sick: 4 * s, SickFor: 2 * s},
		}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
}

func TestParseNamesTheMistake(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"not a statement":     {"until 5s\nhello", `line 2: "hello" is no statement about the pod: want kubernetes, until,`},
		"no time":             {"proxy: healthy after soon", `line 1: "soon" is no time: want 300ms, 2s or 5m`},
		"the past":            {"proxy: healthy after -1s", `line 1: -1s lies in the past`},
		"an eternity":         {"proxy: healthy after 9000h", `line 1: 9000h is too long`},
		"a clause like it":    {"proxy: healthy in 5s", `line 1: "healthy in 5s" is no statement about a container: want healthy after D`},
		"an unknown clause":   {"\n\nproxy: dances", `line 3: "dances" is no statement about a container: want one of calls, cannot,`},
		"an empty clause":     {"proxy: ", `line 1: "" is no statement about a container: want one of`},
		"a wrong name":        {"a b: never healthy", `line 1: "a b" is not the name of a container`},
		"an old kubernetes":   {"kubernetes 1.20", `line 1: "1.20" is not a version of Kubernetes from 1.28 to 1.36`},
		"no lives left":       {"a: completes after 1s, crashes after 2s", `line 1: all lives of the container have an end already`},
		"calls without pause": {"a: calls b every 1ms", `line 1: a call every 1ms is more than a timeline can show`},
		"a crash with 0":      {"a: crashes after 1s with 0", `line 1: 0 is no exit code of a crash: want 1 to 255`},
		"a crash with 256":    {"a: crashes after 1s with 256", `line 1: 256 is no exit code of a crash: want 1 to 255`},
		"an exit with 256":    {"a: calls b after 1s or exits 256", `line 1: 256 is no exit code: want 0 to 255`},
		"too many lives":      {"a: crashes after 1s 5000 times", `line 1: "5000" is no number from 0 to 1000`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tt.text)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("Parse: %v, want %s...", err, tt.want)
			}
		})
	}
}

func TestRunRefusesWhatDoesNotFit(t *testing.T) {
	plan, err := startup.Parse("app after proxy is healthy")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Scenario{
		"an empty pod":                   {Plan: plan},
		"an empty plan":                  {Pod: PodOf(plan)},
		"an unknown container":           {Pod: PodOf(plan), Plan: plan, Behaviour: Behaviour{Containers: map[string]Container{"db": {}}}},
		"a call to an unknown container": {Pod: PodOf(plan), Plan: plan, Behaviour: Behaviour{Containers: map[string]Container{"app": {Calls: []Call{{To: "db"}}}}}},
	} {
		if _, err := Run(s); err == nil {
			t.Errorf("%s is simulated", name)
		}
	}
}

// Every behaviour that can be parsed can be run and drawn in bounded time.
func FuzzBehaviour(f *testing.F) {
	f.Add("proxy: image takes 2s, healthy after 1s\napp: calls proxy after 100ms or exits 1")
	f.Add("sandbox dies at 4s\ndeleted at 20s\nproxy: crashes after 1s always, stops after 3s\napp: killed at 5s, ignores sigterm")
	f.Add("until 30s\nproxy: never healthy, post-start hangs\nmigrate: crashes after 0s always")
	f.Add("kubernetes 1.36\nweb: post-start asks proxy for 1s, unhealthy after 1s for 1s, sleeps 1s, cannot start")
	plan, err := startup.Parse("container migrate is init\ncontainer proxy is sidecar, healthy by post-start\n" +
		"container app is plain\ncontainer web is plain, needs app\n" +
		"app after proxy is healthy, within 5s, on restart restart, by gate\nweb after app is healthy, on restart notify, by gate\nweb after proxy is started, by sleep")
	if err != nil {
		f.Fatal(err)
	}
	pod := podFrom(f, `
spec:
  terminationGracePeriodSeconds: 4
  initContainers:
  - {name: migrate}
  - {name: proxy, restartPolicy: Always, startupProbe: {exec: {command: [check]}, periodSeconds: 1}, lifecycle: {postStart: {exec: {command: [wait]}}}}
  containers:
  - {name: app}
  - {name: web, livenessProbe: {exec: {command: [check]}, periodSeconds: 1}, lifecycle: {postStart: {exec: {command: [wait]}}, preStop: {exec: {command: [drain]}}}}
`)
	f.Fuzz(func(t *testing.T, text string) {
		b, err := Parse(text)
		if err != nil {
			return
		}
		b.Until = min(b.Until, time.Minute)
		o, err := Run(Scenario{Pod: pod, Plan: plan, Behaviour: b})
		if err != nil {
			return // the behaviour names containers that do not exist
		}
		for i, e := range o.Timeline[:max(len(o.Timeline)-1, 0)] {
			if e.At > o.Timeline[i+1].At {
				t.Fatalf("the timeline goes back\n%s", o.Timeline)
			}
		}
		for _, v := range o.Violations {
			if v.How == startup.StartedTooEarly && v.Edge.By == startup.Gate {
				t.Fatalf("a gate let its container through: %v\n%s", v, o.Timeline)
			}
		}
		if c := o.Chart(plan); len(c.Lanes) != 4 {
			t.Fatalf("%d lanes", len(c.Lanes))
		}
	})
}

// Every form of a clause can be parsed, and the help lists it.
func TestEveryFormIsParsed(t *testing.T) {
	example := strings.NewReplacer("NAME", "app", "D", "2s", "N", "3").Replace
	for _, cl := range clauses {
		if _, err := Parse("app: " + example(cl.form)); err != nil {
			t.Errorf("%s: %v", cl.form, err)
		}
		if !strings.Contains(Forms(), cl.form) {
			t.Errorf("the help does not have %q", cl.form)
		}
	}
}
