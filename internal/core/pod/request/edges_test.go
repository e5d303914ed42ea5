package request

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/startup"
)

func TestEdges(t *testing.T) {
	got, err := Edges(map[string]string{
		contract.DependsOn: `
app:   {outrider-proxy: healthy, migrate: completed, cache: {condition: healthy, timeout: 20s, on-timeout: continue}}
"*":   {outrider-proxy: healthy}
web:   {cache: {condition: started, required: false, on-restart: restart, by: gate}}
`,
		contract.DependsOn + ".report": "outrider-proxy, migrate=completed",
		"other":                        "{",
	}, manifest.DecodeAnnotationStrict)
	if err != nil {
		t.Fatal(err)
	}
	want := []startup.Edge{
		{From: "outrider-proxy", To: "*", After: startup.Healthy},
		{From: "cache", To: "app", After: startup.Healthy, Timeout: 20 * time.Second, OnTimeout: startup.Continue},
		{From: "migrate", To: "app", After: startup.Completed},
		{From: "outrider-proxy", To: "app", After: startup.Healthy},
		{From: "cache", To: "web", After: startup.Started, Optional: true, OnRestart: startup.RestartTo, By: startup.Gate},
		{From: "outrider-proxy", To: "report", After: startup.Healthy},
		{From: "migrate", To: "report", After: startup.Completed},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrorsNameTheMistake(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"a word of Kubernetes": {`app: {proxy: ready}`,
			`container app: proxy: "ready" is none of started, healthy, completed; did you mean healthy?`},
		"no condition":  {`app: {proxy: }`, `container app: proxy has no condition; want one of started, healthy, completed`},
		"no graph":      {`[app]`, `want CONTAINER: {DEPENDENCY: CONDITION}: must be an object, not a list`},
		"a name twice":  {"app: {a: started}\napp: {b: started}", `want CONTAINER: {DEPENDENCY: CONDITION}: unmarshal errors:   line 2: key "app" already set in map`},
		"an option":     {`app: {proxy: {condition: healthy, timout: 3s}}`, `container app: proxy: unknown field "timout"; want a condition, or condition, required, timeout, on-timeout, on-restart, by`},
		"a bare number": {`app: {proxy: {condition: healthy, timeout: 3}}`, `container app: proxy: timeout must be a string, not a number; want a condition, or condition, required, timeout, on-timeout, on-restart, by`},
		"a bad time":    {`app: {proxy: {condition: healthy, timeout: soon}}`, `container app: proxy: time: invalid duration "soon"`},
		"on-timeout alone": {`app: {proxy: {condition: healthy, on-timeout: continue}}`,
			`container app: proxy: on-timeout without a timeout; add timeout: 20s, for example`},
		"an unknown mechanism": {`app: {proxy: {condition: healthy, by: gat}}`,
			`container app: proxy: "gat" is none of init, gate, native, hold, wrapper, health-loop, bounded-loop, post-start-probe, sleep; did you mean gate?`},
		"a name that cannot be": {`App: {proxy: healthy}`,
			`container App: proxy: "App" cannot be the name of a container: small letters, digits and '-', at most 63`},
		"a statement smuggled in": {`app: {proxy: "healthy, optional"}`, `container app: "healthy, optional" is not one word`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Edges(map[string]string{contract.DependsOn: tt.text}, manifest.DecodeAnnotationStrict)
			if diff := cmp.Diff("annotation outrider.dev/depends-on: "+tt.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	_, err := Edges(map[string]string{contract.DependsOn: "app: {a: started}", contract.DependsOn + ".app": "a, , b=no, c: started"}, manifest.DecodeAnnotationStrict)
	want := []string{
		`annotation outrider.dev/depends-on.app: container app: "" is not one word; want DEPENDENCY or DEPENDENCY=CONDITION, with commas between`,
		`annotation outrider.dev/depends-on.app: container app: b: "no" is none of started, healthy, completed; want DEPENDENCY or DEPENDENCY=CONDITION, with commas between`,
		`annotation outrider.dev/depends-on.app: container app: "c: started" is not one word; want DEPENDENCY or DEPENDENCY=CONDITION, with commas between; did you mean c=started?`,
		`annotation outrider.dev/depends-on.app: container app: waits for a twice; keep one of the two`,
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), fmt.Sprint(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnknownStart(t *testing.T) {
	_, err := Start(map[string]string{"outrider.dev/start": "natve"})
	if want := `annotation outrider.dev/start: "natve" is none of gate, native, hold, off`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Edges parses the result of FormatEdges into the same edges.
func FuzzEdges(f *testing.F) {
	f.Add(`app: {outrider-proxy: healthy, cache: {condition: healthy, timeout: 20s, on-timeout: continue}}`, "a, b=completed")
	f.Add(`"*": {p: {condition: started, required: false, on-restart: notify, by: native}}`, "")
	f.Fuzz(func(t *testing.T, long, short string) {
		edges, err := Edges(map[string]string{contract.DependsOn: long, contract.DependsOn + ".app": short}, manifest.DecodeAnnotationStrict)
		if err != nil {
			return
		}
		for _, e := range edges {
			if e.Timeout == 0 && e.OnTimeout != startup.Fail {
				t.Fatalf("%+v", e)
			}
		}
		again, err := Edges(map[string]string{contract.DependsOn: FormatEdges(edges)}, manifest.DecodeAnnotationStrict)
		if err != nil {
			t.Fatalf("%v\n%s", err, FormatEdges(edges))
		}
		if len(again) != len(edges) {
			t.Fatalf("%d edges, then %d", len(edges), len(again))
		}
		if a, b := FormatEdges(edges), FormatEdges(again); a != b {
			t.Fatalf("%s\nthen\n%s", a, b)
		}
	})
}
