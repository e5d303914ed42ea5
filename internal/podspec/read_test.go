package podspec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/startup"
)

// object reads the first pod of a file.
func object(t testing.TB, file string) Object {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, _, err := Parse(filepath.Base(file), data)
	if err != nil {
		t.Fatal(err)
	}
	return objects[0]
}

func pod(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	objects, _, err := Parse("pod.yaml", []byte("kind: Pod\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return &objects[0].Pod
}

// goldens calls render for each pod in testdata and compares with what is kept
// beside it; UPDATE=1 keeps the new one.
func goldens(t *testing.T, suffix string, render func(*testing.T, Object) string) {
	files, err := filepath.Glob("testdata/pods/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got := render(t, object(t, file))
			golden := strings.TrimSuffix(file, ".yaml") + suffix
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRead(t *testing.T) {
	goldens(t, ".read", func(t *testing.T, o Object) string {
		r, err := Read(&o.Pod)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s", r.Plan())
		for _, f := range r.Found {
			fmt.Fprintf(&b, "\nfound in %s: %s (%s)\n  %s\n", f.Container, f.Mechanism, f.By, f.Evidence)
			for _, e := range f.Edges {
				fmt.Fprintf(&b, "  %s\n", e)
			}
			if !f.Replaceable {
				continue
			}
			without, err := Without(&o.Pod, f)
			if err != nil {
				t.Fatalf("%s: %v", f.Evidence, err)
			}
			again, _ := Read(without)
			for _, left := range again.Found {
				if left.Container == f.Container && left.Evidence == f.Evidence {
					t.Errorf("taken out and still there: %s", f.Evidence)
				}
			}
			b.WriteString("  replaceable\n")
		}
		for _, n := range r.Notes {
			fmt.Fprintf(&b, "\nnote: %s\n", n)
		}
		return b.String()
	})
}

func TestChoose(t *testing.T) {
	goldens(t, ".choose", func(t *testing.T, o Object) string {
		r, _ := Read(&o.Pod)
		var b strings.Builder
		for _, on := range []startup.Kubernetes{28, 34} {
			fmt.Fprintf(&b, "Kubernetes 1.%d\n", on)
			for _, c := range Choose(r, on) {
				fmt.Fprintf(&b, "  %s\n    %s\n", c.Edge, strings.Join(c.Why, "; "))
				if c.Warning != "" {
					fmt.Fprintf(&b, "    warning: %s\n", c.Warning)
				}
				for _, n := range c.Refused {
					fmt.Fprintf(&b, "    not %s: %s\n", n.By, n.WhyNot())
				}
			}
		}
		return b.String()
	})
}

func TestScriptsAndCommands(t *testing.T) {
	tests := map[string]struct {
		command string // a YAML flow sequence
		want    string // mechanism: evidence
	}{
		"a sleep that is the command":          {`[sh, -c, "sleep 3600"]`, ""},
		"a sleep in a loop is the command":     {`[sh, -c, "while true; do sleep 5; done"]`, ""},
		"a sleep after the command has begun":  {`[sh, -c, "/app & sleep 5; kill %1"]`, ""},
		"sleep, then the app":                  {`[sh, -c, "sleep 5; /app"]`, "sleep: sleep 5"},
		"sleep in minutes":                     {`[bash, -ec, "sleep 1m && /app"]`, "sleep: sleep 1m"},
		"a loop over wget":                     {`[sh, -c, "until wget -q -O- localhost:15021/healthz/ready; do sleep 1; done; /app"]`, "health-loop: until wget -q -O- localhost:15021/healthz/ready; do sleep 1; done"},
		"a loop over /dev/tcp":                 {`[bash, -c, "until (echo > /dev/tcp/127.0.0.1/15021) 2>/dev/null; do sleep 1; done; /app"]`, "health-loop: until (echo > /dev/tcp/127.0.0.1/15021) 2>/dev/null; do sleep 1; done"},
		"a loop with a test":                   {`[sh, -c, "while [ \"$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:15020/healthz/ready)\" != 200 ]; do sleep 1; done; exec /app"]`, `health-loop: while [ "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:15020/healthz/ready)" != 200 ]; do sleep 1; done`},
		"a loop over another host is not ours": {`[sh, -c, "until nc -z postgres 5432; do sleep 1; done; /app"]`, ""},
		"pilot-agent wait in the script":       {`[sh, -c, "pilot-agent wait && /app"]`, "health-loop: pilot-agent wait"},
		"linkerd-await as prefix":              {`[linkerd-await, --shutdown, --, /app]`, "gate: linkerd-await --shutdown -- /app"},
		"linkerd-await behind tini":            {`[/sbin/tini, --, linkerd-await, --, /app]`, "gate: linkerd-await -- /app"},
		"a comment is no command":              {`[sh, -c, "# sleep 5; nothing\n/app"]`, ""},
		"a quoted sleep is text":               {`[sh, -c, "echo 'sleep 5'; /app"]`, ""},
		"our own gate":                         {`[/outrider/bin/outrider-agent, gate, --name, app, --after, istio-proxy is healthy, --, /app]`, "gate: /outrider/bin/outrider-agent gate --name app --after istio-proxy is healthy -- /app"},
		"no shell":                             {`[/app, -c, "sleep 5; /app"]`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := pod(t, "spec: {containers: [{name: app, command: "+tt.command+"}, {name: istio-proxy}]}")
			r, err := Read(p)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range r.Found {
				got += string(f.Mechanism) + ": " + f.Evidence.Text
				if len(f.Edges) != 1 && len(f.Edges[0].From) > 0 {
					t.Errorf("edges: %v", f.Edges)
				}
				if !f.Replaceable {
					t.Error("not replaceable")
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithoutLeavesTheRealCommand(t *testing.T) {
	for command, want := range map[string]string{
		`[sh, -c, "set -e; sleep 5; exec /app"]`:                                               "sh -c set -e; exec /app",
		`[sh, -c, "until curl localhost:15021; do sleep 1; done && /app"]`:                     "sh -c /app",
		`[scuttle, /app, -v], env: [{name: ENVOY_ADMIN_API, value: "http://localhost:15000"}]`: "/app -v",
		`[linkerd-await, --shutdown, --, /app]`:                                                "/app",
	} {
		p := pod(t, "spec: {containers: [{name: app, command: "+command+"}, {name: istio-proxy}]}")
		r, err := Read(p)
		if err != nil || len(r.Found) != 1 {
			t.Fatalf("%s: %v, found %v", command, err, r.Found)
		}
		out, err := Without(p, r.Found[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(out.Spec.Containers[0].Command, " "); got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
}
