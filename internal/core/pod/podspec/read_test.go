package podspec

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/validation"
	"outrider.dev/test/pods"
)

func TestRead(t *testing.T) {
	pods.Goldens(t, "testdata/pods", ".read", func(t *testing.T, pod *corev1.Pod) string {
		r, err := Read(pod)
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
			without, err := Without(pod, f)
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

func TestScriptsAndCommands(t *testing.T) {
	tests := map[string]struct {
		command string // a YAML flow sequence, and other fields
		want    string // mechanism: evidence
		left    string // the command after the ordering has been removed
	}{
		"a sleep that is the command":          {`[sh, -c, "sleep 3600"]`, "", ""},
		"a sleep in a loop is the command":     {`[sh, -c, "while true; do sleep 5; done"]`, "", ""},
		"a sleep after the command has begun":  {`[sh, -c, "/app & sleep 5; kill %1"]`, "", ""},
		"sleep, then the app":                  {`[sh, -c, "sleep 5; /app"]`, "sleep: sleep 5", "sh -c /app"},
		"sleep in minutes":                     {`[bash, -ec, "sleep 1m && /app"]`, "sleep: sleep 1m", "bash -ec /app"},
		"a loop over wget":                     {`[sh, -c, "until wget -q -O- localhost:15021/healthz/ready; do sleep 1; done; /app"]`, "health-loop: until wget -q -O- localhost:15021/healthz/ready; do sleep 1; done", "sh -c /app"},
		"a loop over /dev/tcp":                 {`[bash, -c, "until (echo > /dev/tcp/127.0.0.1/15021) 2>/dev/null; do sleep 1; done; /app"]`, "health-loop: until (echo > /dev/tcp/127.0.0.1/15021) 2>/dev/null; do sleep 1; done", "bash -c /app"},
		"a loop with a test":                   {`[sh, -c, "while [ \"$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:15020/healthz/ready)\" != 200 ]; do sleep 1; done; exec /app"]`, `health-loop: while [ "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:15020/healthz/ready)" != 200 ]; do sleep 1; done`, "sh -c exec /app"},
		"a loop over another host is not ours": {`[sh, -c, "until nc -z postgres 5432; do sleep 1; done; /app"]`, "", ""},
		"pilot-agent wait in the script":       {`[sh, -c, "pilot-agent wait && /app"]`, "health-loop: pilot-agent wait", "sh -c /app"},
		"linkerd-await as prefix":              {`[linkerd-await, --shutdown, --, /app]`, "wrapper: linkerd-await --shutdown -- /app", "/app"},
		"linkerd-await behind tini":            {`[/sbin/tini, --, linkerd-await, --, /app]`, "wrapper: linkerd-await -- /app", "/app"},
		"a comment is no command":              {`[sh, -c, "# sleep 5; nothing\n/app"]`, "", ""},
		"a quoted sleep is text":               {`[sh, -c, "echo 'sleep 5'; /app"]`, "", ""},
		"our own gate":                         {`[/outrider/bin/outrider-agent, gate, --name, app, --after, istio-proxy is healthy, --, /app]`, "gate: /outrider/bin/outrider-agent gate --name app --after istio-proxy is healthy -- /app", "/app"},
		"a sleep behind a setting":             {`[sh, -c, "set -e; sleep 5; exec /app"]`, "sleep: sleep 5", "sh -c set -e; exec /app"},
		"scuttle":                              {`[scuttle, /app, -v], env: [{name: ENVOY_ADMIN_API, value: "http://localhost:15000"}]`, "wrapper: scuttle /app -v", "/app -v"},
		"no shell":                             {`[/app, -c, "sleep 5; /app"]`, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := pods.Parse(t, "spec: {containers: [{name: app, command: "+tt.command+"}, {name: istio-proxy}]}")
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
				out, err := Without(p, f)
				if err != nil {
					t.Fatal(err)
				}
				if left := strings.Join(out.Spec.Containers[0].Command, " "); left != tt.left {
					t.Errorf("without it the command is %q, want %q", left, tt.left)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Read recognises whether a statement polls with or without a limit, and whether it polls for health or only for
// an open port.
func TestHowAStatementPolls(t *testing.T) {
	const (
		keeps  = "healthy, by health-loop"
		port   = "started, by health-loop"
		givesU = "healthy, by bounded-loop"
		both   = "started, by bounded-loop"
	)
	const url = "localhost:15021/healthz/ready"
	tests := []struct {
		script string
		want   string
		lasts  time.Duration
	}{
		{"until curl -fsI URL; do sleep 1; done; /app", keeps, 0},
		{"until curl -s --fail URL >/dev/null 2>&1; do echo waiting; sleep 1; done && /app", keeps, 0},
		{"while ! wget -qO- URL; do sleep 1; done; /app", keeps, 0},
		{"while true; do curl -f URL && break; sleep 1; done; /app", keeps, 0},
		{"while :; do if curl -f URL; then break; fi; sleep 1; done; /app", keeps, 0},
		{"for ((;;)); do wget -q URL && break; sleep 1; done; /app", keeps, 0},
		{"until curl -s URL | grep -q LIVE; do sleep 1; done; /app", keeps, 0},
		{"until curl -f URL; do sleep 1; done & /app", "", 0},
		{"until curl -s URL; do sleep 1; done; /app", port, 0},
		{"until curl --head URL; do sleep 1; done; /app", port, 0},
		{"until nc -z localhost 15021; do sleep 1; done; /app", port, 0},
		{"until (echo > /dev/tcp/localhost/15021) 2>/dev/null; do sleep 1; done; /app", port, 0},

		{"for i in 1 2; do curl -fs URL && break; sleep 0.3; done; /app", givesU, 600 * time.Millisecond},
		{"for i in $(seq 1 30); do curl -fs URL && break; sleep 2; done; /app", givesU, time.Minute},
		{"set -e; for i in {1..9}; do curl -fs URL && break; sleep 1; done; /app", givesU, 9 * time.Second},
		{"until curl -f URL || [ $i -gt 20 ]; do i=$((i+1)); sleep 1; done; /app", givesU, 20 * time.Second},
		{"until curl -f URL; do i=$((i+1)); [ $i -ge 5 ] && break; sleep 1; done; /app", givesU, 5 * time.Second},
		{"while [ $i -lt 7 ]; do curl -f URL && break; sleep 1; done; /app", givesU, 7 * time.Second},
		{"while true; do curl -f URL; sleep 1; break; done; /app", givesU, 0},
		{"while curl -f URL; do sleep 1; done; /app", givesU, 0},
		{"for i in 1 2 3; do nc -z localhost 15021 && break; sleep 1; done; /app", both, 3 * time.Second},
		{"for i in 1 2 3; do curl -f URL && exit 0; sleep 1; done; exit 1", keeps, 0},

		{"curl --retry 3 -f URL; /app", givesU, 0},
		{"curl --retry 3 --retry-connrefused -f URL; /app", givesU, 7 * time.Second},
		{"curl --retry 4 --retry-all-errors --retry-delay 2 -f URL || true; /app", givesU, 8 * time.Second},
		{"curl --retry 3 -f URL && /app", keeps, 0},
		{"curl --retry 3 -f URL || exit 1; /app", keeps, 0},
		{"curl --retry 3 -f URL || exit 0; /app", givesU, 0},
		{"set -eu; curl --retry 3 -f URL; /app", keeps, 0},
		{"pilot-agent wait; /app", givesU, time.Minute},
		{"pilot-agent wait && /app", "healthy, within 1m0s, by health-loop", 0},
		{"outrider-agent wait; /app", keeps, 0},
	}
	for _, tt := range tests {
		for shell, errexit := range map[string]bool{"bash -c": false, "bash -ec": true} {
			p := pods.Parse(t, "spec: {containers: [{name: app}, {name: istio-proxy}, {name: outrider-proxy}]}")
			p.Spec.Containers[0].Command = append(strings.Fields(shell), strings.ReplaceAll(tt.script, "URL", url))
			r, err := Read(p)
			if err != nil {
				t.Fatal(err)
			}
			got, lasts := "", time.Duration(0)
			for _, f := range r.Found {
				_, got, _ = strings.Cut(f.Edges[0].String(), " is ")
				lasts = f.Lasts
			}
			want, wantLasts := tt.want, tt.lasts
			if fails := strings.HasPrefix(tt.script, "curl --retry 3") || strings.HasPrefix(tt.script, "pilot-agent"); errexit && fails && !strings.Contains(tt.script, "||") {
				want, wantLasts = strings.Replace(want, "bounded", "health", 1), 0
				if strings.HasPrefix(tt.script, "pilot-agent") {
					want = "healthy, within 1m0s, by health-loop"
				}
			}
			if got != want || lasts != wantLasts {
				t.Errorf("%s %q: got %q, %s, want %q, %s", shell, tt.script, got, lasts, want, wantLasts)
			}
		}
	}
}

// A hook that may continue without an answer does not prove health.
func TestHooksThatHoldUntilHealthy(t *testing.T) {
	for script, want := range map[string]string{
		"until curl -fs localhost:15021/healthz/ready; do sleep 1; done":                             "healthy",
		"for i in 1 2 3; do curl -fs localhost:15021/healthz/ready && exit 0; sleep 1; done; exit 1": "healthy",
		"curl -f --retry 3 --retry-connrefused localhost:15021/healthz/ready":                        "healthy",
		"pilot-agent wait":                        "healthy",
		"pilot-agent wait || true":                "started",
		"until nc -z localhost 15021; do :; done": "started",
		"for i in 1 2 3; do curl -fs localhost:15021/healthz/ready && break; sleep 1; done; exit 0": "started",
	} {
		for kind, text := range map[string]string{
			"native": `{initContainers: [{name: istio-proxy, restartPolicy: Always}], containers: [{name: app}]}`,
			"hold":   `{containers: [{name: istio-proxy}, {name: app}]}`,
		} {
			p := pods.Parse(t, "spec: "+text)
			proxy := &p.Spec.Containers[0]
			if kind == "native" {
				proxy = &p.Spec.InitContainers[0]
			}
			proxy.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", script}}}}
			r, err := Read(p)
			if err != nil {
				t.Fatal(err)
			}
			plan := r.Plan()
			if len(plan.Edges) != 1 || string(plan.Edges[0].After) != want || string(plan.Edges[0].By) != kind {
				t.Errorf("%s, %q: %v, want %s", kind, script, plan.Edges, want)
			}
			if noted := len(r.Notes) > 0; noted != (want == "started") {
				t.Errorf("%s, %q: notes %v", kind, script, r.Notes)
			}
			if bad := plan.Validate(34).Err(); bad != nil {
				t.Errorf("%s, %q: %v", kind, script, bad)
			}
		}
	}
}

// A pod with too many containers is refused before anything is computed.
func TestTooManyContainersAreNotRead(t *testing.T) {
	var p corev1.Pod
	for i := range validation.MaxContainers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i)})
	}
	if r, err := Read(&p); err != nil || len(r.Containers) != validation.MaxContainers {
		t.Errorf("%d containers, %v", len(r.Containers), err)
	}
	p.Spec.InitContainers = []corev1.Container{{Name: "one-more"}}
	const want = "spec.containers: 301 containers are more than are read; want at most 300"
	if r, err := Read(&p); err == nil || err.Error() != want || len(r.Containers) > 0 {
		t.Errorf("%d containers, %v, want %s", len(r.Containers), err, want)
	}
}
