package lint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/finding"
	"outrider.dev/test/tier"
)

// The parts of random command lines: the start of the shell, the commands before the main program, the separators
// between commands, and the main program.
var (
	invocations = [][]string{{"sh", "-c"}, {"/bin/sh", "-ec"}, {"bash", "-euo", "pipefail", "-c"}, {"env", "B=2", "bash", "-c"}, {"sh", "-c", "--"}, {"bash", "-c", "-e"},
		{"tini", "--", "sh", "-c"}, {"bash", "+e", "-O", "extglob", "-c"}, {"dash", "-o", "errexit", "-c"}, {"bash", "--norc", "-c", "-"}}
	preparations = []string{"until curl -fs localhost:15021/healthz/ready; do sleep 1; done", "while ! nc -z localhost 15021; do sleep 1; done",
		"until curl -fs localhost:15021/healthz/ready\ndo\n  sleep 1\ndone", "sleep 10", "sleep 5s", "set -e", "set -eu", "export A=1", "echo start", "umask 022", "trap 'app trapped' EXIT",
		"f() { app in f; }", "alias app='app aliased'", "g() { app in g; }", "# a comment\nA=3", "app first", "false || app second", "[ -z \"$A\" ] || app third"}
	separations = []string{"; ", " && ", "\n", " || exit 1; ", " || true; ", " & ", "; \n\n"}
	purposes    = []string{`app --flag "a b"`, "exec app", "A=1 app 'x y'", `"$@"`, "$APP", "$DIR/app", `"${DIR}/app" x`, "cd /", "f", "g", "app > /dev/null", "(app)", "app | cat", "app & wait",
		"command app", "app || true", `app "$(echo x)"`, "nohup app", "$(echo app) y", "eval app", "app 2>&1", "{ app; }", "! app", "app;", "app # now", `app $(PART)`, "test -n x"}
)

// randomCommand returns a command line, as command and args.
func randomCommand(r *rand.Rand) (command, args []string) {
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	script := ""
	for range 1 + r.IntN(3) {
		script += pick(preparations) + pick(separations)
	}
	all := append(slices.Clone(invocations[r.IntN(len(invocations))]), script+pick(purposes))
	if r.IntN(2) == 0 {
		all = append(all, "name", "app", "arg one")
	}
	cut := len(all)
	if r.IntN(2) == 0 {
		cut = 1 + r.IntN(len(all)-1)
	}
	return all[:cut], all[cut:]
}

// programs creates a folder of programs. The main program app prints its variables and arguments; curl, nc and sleep
// succeed at once.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"app":  "echo \"app:$A:$B:$#:$*\"\nexit 3\n",
		"curl": "", "nc": "", "sleep": "",
		"tini": "shift\nexec \"$@\"\n", "nohup": "exec \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "bash", "dash", "env", "cat"} {
		file, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(file, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ran runs a command and returns the lines of its standard output, and its exit status. It sorts the lines because
// background commands print at any time.
func ran(t *testing.T, dir string, argv []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, filepath.Base(argv[0])), argv[1:]...)
	cmd.Env = []string{"PATH=" + dir, "DIR=" + dir, "APP=app"}
	out, err := cmd.Output()
	lines := strings.Split(string(out), "\n")
	slices.Sort(lines)
	return fmt.Sprintf("%q %v", lines, err)
}

// fixedCommand applies all fixes to a pod with Istio's proxy and an application that runs this command line. It
// returns the command line of the application after the fixes.
func fixedCommand(t *testing.T, command, args []string) []string {
	t.Helper()
	pod := corev1.Pod{}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", "a"
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "example.com/app:1", Command: command, Args: args}, {Name: "istio-proxy", Image: "docker.io/istio/proxyv2:1.24.0", Args: []string{"proxy", "sidecar"}}}
	text, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	fixed, err := Fix([]File{{"pod.yaml", text}}, Options{Kubernetes: 34}, func(finding.Finding) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	var after corev1.Pod
	if err := yaml.Unmarshal(fixed.Files[0].Data, &after); err != nil {
		t.Fatal(err)
	}
	c := containerOf(&after, "app")
	return slices.Concat(c.Command, c.Args)
}

// A fix removes commands from a script, but the main program still runs with the same arguments, environment and exit
// status. The test runs both versions of random scripts in real shells. Some scripts have a trap or a function, which
// would be lost if a fix added exec.
func TestFixesKeepTheProgram(t *testing.T) {
	const wanted = 500
	dir := programs(t)
	changed, kept := 0, 0
	for seed := uint64(1); changed < tier.Times(wanted/5, wanted); seed++ {
		if seed > 100*wanted {
			t.Fatalf("%d fixes of %d commands", changed, seed)
		}
		command, args := randomCommand(rand.New(rand.NewPCG(seed, 1)))
		before := slices.Concat(command, args)
		after := fixedCommand(t, command, args)
		if slices.Equal(before, after) {
			kept++
			continue
		}
		changed++
		if was, is := ran(t, dir, before), ran(t, dir, after); was != is {
			t.Errorf("%q\nran %q, and fixed as\n%q\nran %q", before, was, after, is)
		}
	}
	t.Logf("%d commands were changed, %d were not", changed, kept)
}

// These are command lines from which an earlier version of the fixes lost a program.
func TestFixOfACommand(t *testing.T) {
	const loop = "until curl -fs localhost:15021/healthz/ready; do sleep 1; done"
	for name, tt := range map[string]struct {
		command, args, want []string // nil: unchanged
	}{
		"options end behind -c":                     {[]string{"sh", "-c", "--"}, []string{"app x"}, []string{"sh", "-c", "--", "exec app x"}},
		"options follow -c":                         {[]string{"sh", "-c", "-e", "app x"}, nil, []string{"sh", "-c", "-e", "exec app x"}},
		"a loop that fails":                         {[]string{"sh", "-c", loop + " || exit 1; exec app"}, nil, nil},
		"a loop behind a condition":                 {[]string{"sh", "-c", "test -e /x || " + loop + "; exec app"}, nil, nil},
		"a name that the kubelet fills in":          {[]string{"sh", "-c", "$(START)"}, nil, nil},
		"a variable that may be a builtin":          {[]string{"bash", "-c", "cd /srv; $START"}, nil, nil},
		"the container's arguments":                 {[]string{"sh", "-c", `cd /srv; "$@"`, "sh", "app"}, nil, []string{"sh", "-c", `cd /srv; exec "$@"`, "sh", "app"}},
		"a function of the same name":               {[]string{"sh", "-c", "app() { /srv/app; }; app"}, nil, nil},
		"a function in the words of bash":           {[]string{"sh", "-c", "function app { /srv/app; }; app"}, nil, nil},
		"a loop with the program in it":             {[]string{"bash", "-c", "for i in {1..30}; do if curl -sf localhost:15021/healthz/ready; then exec app; fi; sleep 1; done; exit 1"}, nil, nil},
		"a loop that does other work":               {[]string{"sh", "-c", "until curl -sf localhost:15021/healthz/ready; do migrate; sleep 1; done; exec app"}, nil, nil},
		"a loop whose variable is used":             {[]string{"sh", "-c", "n=0; for i in 1 2; do curl -sf localhost:15021/healthz/ready && n=1 && break; sleep 1; done; [ $n = 1 ] && exec app"}, nil, nil},
		"a pause that is all":                       {[]string{"sh", "-c", "sleep 3600; echo done"}, nil, nil},
		"what runs if the program fails":            {[]string{"sh", "-c", "app || fallback"}, nil, nil},
		"a call after the program":                  {[]string{"sh", "-c", "app; curl -X POST localhost:15020/quitquitquit"}, nil, nil},
		"behind an init program":                    {[]string{"tini", "--", "sh", "-c", "migrate; app"}, nil, []string{"tini", "--", "sh", "-c", "migrate; exec app"}},
		"a builtin that is written as a program is": {[]string{"sh", "-c", "cd /srv; command app"}, nil, nil},
		"strict options":                            {[]string{"bash", "-euo", "pipefail", "-c", loop + "; exec app"}, nil, []string{"bash", "-euo", "pipefail", "-c", "exec app"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.want == nil {
				tt.want = slices.Concat(tt.command, tt.args)
			}
			if got := fixedCommand(t, tt.command, tt.args); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", strings.Join(got, "|"), strings.Join(tt.want, "|"))
			}
		})
	}
}
