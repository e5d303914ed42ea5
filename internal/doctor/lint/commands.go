package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// running returns the regular containers and the native sidecars, without the containers of meshes.
func (s *subject) running() []member {
	return slices.DeleteFunc(s.members(), func(m member) bool { return m.kind == startup.Init || knownproxy.OfMesh(m.Name) })
}

// addressWaits lists programs that connect to an address until it answers, and then run the real command.
var addressWaits = []string{"wait-for-it.sh", "wait-for-it", "wait-for.sh", "wait-for", "dockerize"}

// waitPrograms lists programs that wait for an address or for the proxy, and then run the real command.
var waitPrograms = slices.Concat(addressWaits, []string{"scuttle", "envoy-preflight"})

// waitsByProgram finds containers whose command runs one of waitPrograms. The programs behave differently at their
// timeouts.
func waitsByProgram(s subject, b *builder) {
	for _, m := range s.running() {
		calls := shell.Calls(m.argv())
		for _, call := range calls {
			if !slices.Contains(waitPrograms, call.Program) {
				continue
			}
			c := clue{code: "wait-program", field: m.wordAt(call.Word), evidence: call.Program,
				do: fmt.Sprintf("request the order by annotation (%s.%s: NAME), or let an init container wait for another pod", contract.DependsOn, m.Name)}
			args := strings.Join(call.Args, " ")
			switch call.Program {
			case "dockerize":
				if !strings.Contains(args, "-wait") {
					continue
				}
				c.title = fmt.Sprintf("%s waits by dockerize in its own command", m.Name)
				c.why, c.source = "it ends after -timeout (10 s without it), and the container is restarted with back-off, which doubles to 5 min; it also stays the parent of the app", "jwilder/dockerize README"
			case "scuttle", "envoy-preflight":
				if s.ends() || !slices.ContainsFunc(m.Env, func(e corev1.EnvVar) bool { return e.Name == "ENVOY_ADMIN_API" }) {
					continue // the program ends the proxy of a Job, or waits for nothing
				}
				c.title = fmt.Sprintf("%s waits for its proxy by %s", m.Name, call.Program)
				c.why, c.source = "it polls the proxy's admin port and stays the parent of the app; with START_WITHOUT_ENVOY or a time limit the app starts without the proxy", "redboxllc/scuttle README"
				c.do = "remove it where Outrider injects: each container waits for the proxy, and the proxy of a Job ends by itself"
			default:
				strict := slices.ContainsFunc(call.Args, func(a string) bool {
					return a == "-s" || a == "--strict" || a == "-t" && strings.Contains(args, "-t 0") || a == "--timeout=0"
				})
				c.title = fmt.Sprintf("%s waits by %s, and starts without what it waits for after a time limit", m.Name, call.Program)
				c.why, c.source = "it polls the port once a second, gives up after 15 s or its -t, and starts the command nevertheless", "vishnubob/wait-for-it"
				if strict {
					c.title = fmt.Sprintf("%s waits by %s in its own command", m.Name, call.Program)
					c.why = "it polls the port once a second; an open port is not yet a server that is ready"
				}
			}
			b.add(c)
			break
		}
	}
}

// idle lists programs that need no time to stop cleanly.
var idle = []string{"sleep", "tail", "curl", "wget", "kill", "nc", "ps", "pgrep", "top", "free", "ping", "seq", "wait"}

// execsLast lists the shells that replace themselves with the last command of a "-c" script. This was measured with
// bash 5.2 and busybox 1.35. The sh of Debian and Ubuntu, dash 0.5.12, does not do it.
var execsLast = []string{"bash", "ash", "busybox", "zsh"}

// execsItsLast reports whether a shell replaces itself with the last simple command of a script. There are two
// exceptions: busybox does not do it if a newline follows the command, as in a YAML block, and bash does not do it if
// a comment follows.
func execsItsLast(shell, script string) bool {
	if shell == "bash" && strings.HasPrefix(script[strings.LastIndexByte(strings.TrimRight(script, "\n"), '\n')+1:], "#") {
		return false
	}
	return slices.Contains(execsLast, shell) && (shell == "bash" || shell == "zsh" || !strings.HasSuffix(script, "\n"))
}

// shellStays finds shells that stay process 1 (or the child of an init program). They get the stop signal and do not
// forward it to the program.
func shellStays(s subject, b *builder) {
	if s.ends() {
		return // the pod ends by itself
	}
	for _, m := range s.running() {
		argv := m.argv()
		script, ok := shell.ScriptOf(argv)
		if !ok || m.stopsByHook() {
			continue
		}
		program := script.Shell
		if program == "sh" && (strings.Contains(m.Image, "alpine") || strings.Contains(m.Image, "busybox")) {
			program = "busybox"
		}
		calls := shell.Calls(argv)
		if m.offline() || len(calls) > 0 && !slices.ContainsFunc(calls, func(c shell.Call) bool {
			return !slices.Contains(offline, c.Program) && !slices.Contains(idle, c.Program)
		}) {
			continue // the shell only pauses, loops or sends requests, so that killing it loses nothing
		}
		last := slices.IndexFunc(calls, func(c shell.Call) bool { return c.Final })
		ended := func(c shell.Call) bool { // the script handles signals, or ends (perhaps only in a branch) with an exec
			return c.Program == "trap" || c.Execed && !c.Final && (c.Always || last < 0)
		}
		if len(calls) == 0 || slices.ContainsFunc(calls, ended) {
			continue
		}
		if last >= 0 && (calls[last].Execed || calls[last].Alone && execsItsLast(program, argv[calls[last].Word])) {
			continue
		}
		c := clue{code: "shell-without-exec", title: fmt.Sprintf("the shell of %s stays the parent of its program", m.Name), field: m.wordAt(calls[0].Word), source: "measured: bash 5.2, busybox 1.35, dash 0.5.12",
			why: "as PID 1 it ignores SIGTERM and does not forward it: the program does not stop by itself, and is killed when the whole grace period is over",
			do:  "begin the last command with exec, or trap SIGTERM and forward it"}
		if shell.AfterInit(argv) > 0 {
			c.source = "measured: tini 0.19.0 with and without -g, dumb-init 1.2.5"
			c.why = "the init program passes SIGTERM to it, it ends at once, and the container with it: the program is killed without any time to stop"
		}
		if shell.Endless(argv) && slices.ContainsFunc(calls, func(c shell.Call) bool { return c.Program == "sleep" }) {
			c.severity = finding.Note // it repeats something short, or idles: that the stop takes the whole grace period is all
		}
		idles := last >= 0 && slices.Contains(idle, calls[last].Program)
		if last < 0 || idles { // exec cannot be put into a loop, a pipe or the background; and an idle command need not stop cleanly
			c.do = "run the program alone with exec, or trap SIGTERM and pass it on"
		}
		if last >= 0 && calls[last].Alone && program == "sh" {
			c.title = fmt.Sprintf("the shell of %s stays the parent of its program where sh is dash (Debian, Ubuntu)", m.Name)
			c.severity = finding.Note // which of the two only the image shows
		}
		if last >= 0 {
			c.evidence = calls[last].Program
			if !idles && !calls[last].Nested {
				c.fix = s.execing(m, calls[last])
			}
		}
		b.add(c)
	}
}

// stopsByHook reports whether the container has a preStop hook that does more than sleep, and so may end the program.
func (m member) stopsByHook() bool {
	l := m.Lifecycle
	if l == nil || l.PreStop == nil {
		return false
	}
	text := ""
	if l.PreStop.Exec != nil {
		text = strings.Join(l.PreStop.Exec.Command, " ")
	}
	return l.PreStop.HTTPGet != nil || text != "" && !onlySleeps.MatchString(text)
}

var onlySleeps = regexp.MustCompile(`^((/bin/|/usr/bin/)?(ba)?sh -\w*c )?(/bin/|/usr/bin/)?sleep [0-9smh.]+;?$`)

// execing returns the change that writes exec before a call.
func (s *subject) execing(m member, call shell.Call) *change {
	after := s.Pod.DeepCopy()
	c := containerOf(after, m.Name)
	words, i := c.Command, call.Word
	if i >= len(words) {
		words, i = c.Args, i-len(c.Command)
	}
	words[i] = words[i][:call.At] + "exec " + words[i][call.At:]
	return s.to(after)
}

// postStartConnects finds postStart hooks that connect to other pods or hosts. If such a hook fails, its container is
// killed.
func postStartConnects(s subject, b *builder) {
	for _, m := range s.running() {
		if m.Lifecycle == nil || m.Lifecycle.PostStart == nil {
			continue
		}
		field, evidence := m.field.plus("lifecycle", "postStart"), ""
		switch h := m.Lifecycle.PostStart; {
		case h.HTTPGet != nil && h.HTTPGet.Host != "" && !shell.IsLocal(h.HTTPGet.Host):
			field, evidence = field.plus("httpGet", "host"), h.HTTPGet.Host
		case h.Exec != nil:
			for _, call := range shell.Calls(h.Exec.Command) {
				if text, connects := connectsTo(call, m.env()); connects {
					field, evidence = field.plus("exec", "command", call.Word), text
					break
				}
			}
		}
		if evidence == "" {
			continue
		}
		b.add(clue{code: "post-start-network", title: fmt.Sprintf("the postStart of %s connects to others", m.Name), field: field, evidence: evidence,
			why: "if the other one does not respond, the hook fails and the kubelet kills the container, with back-off; until it returns, the next container of the list does not start",
			do:  "connect in the program itself, or in an init container", source: "kubelet v1.34.4 kuberuntime_container.go: FailedPostStartHook"})
	}
}
