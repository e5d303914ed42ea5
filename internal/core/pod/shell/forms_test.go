package shell

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A shell and its script are found in all forms in which people write them.
func TestScriptOfForms(t *testing.T) {
	t.Parallel()
	const text = "run the app"
	for _, argv := range [][]string{
		{"sh", "-c"}, {"/bin/sh", "-c"}, {"bash", "-ec"}, {"bash", "-euo", "pipefail", "-c"}, {"bash", "-e", "-u", "-o", "pipefail", "-c"}, {"bash", "-lc"},
		{"bash", "--login", "-c"}, {"bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"}, {"/bin/bash", "-O", "extglob", "-c"}, {"zsh", "-c"}, {"dash", "-c"}, {"mksh", "-c"},
		{"sh", "-c", "--"}, {"sh", "-xc"}, {"bash", "+x", "-c"},
		{"env", "bash", "-c"}, {"/usr/bin/env", "-i", "A=b", "sh", "-c"}, {"env", "-u", "A", "--chdir=/tmp", "sh", "-c"}, {"env", "-C", "/srv", "sh", "-c"},
		{"gosu", "app", "sh", "-c"}, {"gosu", "1000:1000", "bash", "-euo", "pipefail", "-c"}, {"su-exec", "app", "sh", "-c"}, {"s6-setuidgid", "app", "sh", "-c"},
		{"setpriv", "--reuid=1000", "--regid", "1000", "--clear-groups", "sh", "-c"}, {"setpriv", "--reuid", "1000", "--", "sh", "-c"}, {"chpst", "-u", "app", "sh", "-c"},
		{"su", "app", "-c"}, {"su", "-", "app", "-c"}, {"su", "-s", "/bin/sh", "app", "-c"}, {"su", "-c"}, {"su", "-lc"}, {"runuser", "-u", "app", "--", "sh", "-c"}, {"runuser", "-l", "app", "-c"},
		{"timeout", "30", "sh", "-c"}, {"timeout", "-k", "5", "--signal=TERM", "30s", "sh", "-c"}, {"timeout", "-k5s", "-s", "KILL", "30", "sh", "-c"},
		{"nice", "sh", "-c"}, {"nice", "-n", "10", "sh", "-c"}, {"nice", "-n10", "sh", "-c"}, {"nice", "-10", "sh", "-c"}, {"ionice", "-c", "2", "-n", "7", "sh", "-c"}, {"ionice", "-c2", "sh", "-c"},
		{"busybox", "sh", "-c"}, {"busybox", "ash", "-ec"}, {"/bin/busybox", "nice", "sh", "-c"},
		{"nohup", "sh", "-c"}, {"setsid", "-w", "sh", "-c"}, {"stdbuf", "-oL", "-e", "0", "sh", "-c"}, {"chroot", "--userspec=1:1", "/root", "sh", "-c"}, {"sudo", "-E", "-u", "app", "A=b", "sh", "-c"},
		{"tini", "--", "sh", "-c"}, {"/sbin/tini", "-g", "-p", "SIGTERM", "--", "sh", "-c"}, {"dumb-init", "-c", "--", "sh", "-c"}, {"dumb-init", "-r", "15:3", "sh", "-c"},
		{"tini", "--", "gosu", "app", "nice", "timeout", "1h", "env", "A=b", "bash", "-o", "errexit", "-c"},
	} {
		s, ok := ScriptOf(append(slices.Clone(argv), text, "name"))
		if !ok || s.Text != text || s.At != len(argv) {
			t.Errorf("%q: %+v, %v", argv, s, ok)
		}
	}
	for _, argv := range [][]string{
		nil, {"sh"}, {"sh", "-c"}, {"sh", "script.sh"}, {"env"}, {"env", "-S", "sh -c x"}, {"timeout"}, {"timeout", "30"}, {"su", "app"}, {"su", "-c"}, {"command", "-v", "sh", "-c"}, {"busybox", "--list"},
		{"gosu", "sh", "-c"}, {"runuser", "-u", "app"}, {"nice", "-n"}, {"app", "sh", "-c", "x"}, {"tini"}, {"chroot"}, {"-"}, {"--", "sh", "-c", "x"},
	} {
		if s, ok := ScriptOf(argv); ok {
			t.Errorf("%q is the script %+v", argv, s)
		}
	}
}

// A timeout limits the script after it.
func TestScriptOfLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]time.Duration{"30": 30 * time.Second, "1.5m": 90 * time.Second, "2h": 2 * time.Hour, "1d": 24 * time.Hour, "$LIMIT": 0, "0": 0} {
		if s, ok := ScriptOf([]string{"timeout", limit, "sh", "-c", "x"}); !ok || s.Limit != want {
			t.Errorf("timeout %s: %v, %v, want %v", limit, s.Limit, ok, want)
		}
	}
}

// A script within a script is read as the script itself, but for its place.
func TestCallsNested(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Call{
		`exec bash -c "exec /srv/app --port 1"`:                  {Program: "app", Args: []string{"--port", "1"}, Word: 2, Final: true, Execed: true, Always: true, Nested: true},
		`a; bash -c '/srv/app'`:                                  {Program: "app", Args: []string{}, Word: 2, At: 3, Final: true, Always: true, Nested: true},
		`su app -c "gosu x sh -c 'exec timeout 5 /srv/app'"`:     {Program: "app", Args: []string{}, Word: 2, Final: true, Always: true, Nested: true},
		`command -v bash`:                                        {Program: "command", Args: []string{"-v", "bash"}, Word: 2, Final: true, Always: true, Alone: true},
		`sh -c 'sh -c "sh -c \"sh -c \\\"sh -c too-deep\\\"\""'`: {Program: "sh", Args: []string{"-c", "sh -c too-deep"}, Word: 2, Final: true, Always: true, Nested: true},
	} {
		all := Calls([]string{"sh", "-c", text})
		if len(all) == 0 {
			t.Fatalf("%s: no calls", text)
		}
		if diff := cmp.Diff(want, all[len(all)-1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestEndless(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"sleep infinity": true, "exec sleep inf": true, "tail -f /dev/null": true, "tail -n0 -F a": true, "tail --follow=name a": true, "a && tail -f b": true,
		"while true; do date; sleep 1; done": true, "while :; do sleep 1; done": true, "trap 'exit 0' TERM; while [ 1 ]; do sleep 1; done": true, "for ((;;)); do sleep 1; done": true, "until false; do sleep 1; done": true,
		"bash -c 'exec tail -f a'": true, "nice tail -f a": true, "/pause": true,
		"sleep 3600": false, "tail a": false, "tail -f --pid=7 a": false, "tail -f a & /srv/job": false, "a || sleep infinity": false, "timeout 5 tail -f a": false, "timeout 5 sh -c 'tail -f a'": false,
		"while true; do a && break; sleep 1; done": false, "while true; do if [ -f /done ]; then exit 0; fi; sleep 1; done": false, "while true; do a; done & b": false, "while a; do b; done": false, "for i in 1 2; do a; done": false, "((": false, "": false,
	} {
		if got := Endless([]string{"sh", "-c", text}); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if !Endless([]string{"tini", "--", "sleep", "infinity"}) || Endless(nil) || Endless([]string{"timeout", "5", "sleep", "infinity"}) || Endless([]string{"sleep"}) {
		t.Error("without a shell")
	}
}
