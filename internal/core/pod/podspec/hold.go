package podspec

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// hook recognises a postStart hook that waits. A hook that waits for its own container holds back the regular
// containers listed after it. A hook that waits for another container is a work-around: it does not delay its
// container's command, which runs at the same time.
func hook(r *reader, c podContainer) {
	w, ok := r.hookWait(c)
	if !ok {
		return
	}
	f := podstart.Found{Container: c.Name, By: w.by, Evidence: podstart.Evidence{Field: w.field, Text: w.text}, Replaceable: true}
	if w.from == c.Name && !w.untilHealthy() {
		r.Note("the postStart hook of " + c.Name + " " + w.weakness() + ": what it holds waits only until " + c.Name + " is started")
	}
	switch {
	case w.from != c.Name:
		f.Mechanism = startup.PostStartProbe
		f.Edges = []startup.Edge{w.edge(r, c.Name, startup.PostStartProbe)}
	case c.kind == startup.Plain:
		f.Mechanism = startup.Hold
		for _, to := range r.all[c.at+1:] {
			e := w.edge(r, to.Name, startup.Hold)
			e.Timeout, e.OnTimeout = w.timeout, startup.Continue
			if w.givesUp {
				e.Timeout = 0 // the length of the polling is not known
			}
			if e.Timeout == 0 {
				e.OnTimeout = startup.Fail
			}
			f.Edges = append(f.Edges, e)
		}
	default:
		return // [native] handles the hook of a sidecar
	}
	r.add(f)
	if len(f.Edges) == 0 {
		r.Note("the postStart hook of " + c.Name + " has no effect: no container is listed after it")
	}
}

// A hookWait is a wait for a container, found in a command, usually the command of a postStart hook.
type hookWait struct {
	from    string
	by      string
	field   string
	text    string
	timeout time.Duration // 0: no limit
	givesUp bool          // after the timeout it succeeds without an answer
	port    bool          // it checks only whether a port is open
}

// untilHealthy reports whether the end of the wait proves that the container is healthy.
func (w hookWait) untilHealthy() bool { return !w.givesUp && !w.port }

// weakness returns the reason why the end of the wait does not prove health.
func (w hookWait) weakness() string {
	if w.givesUp {
		return "polls a number of times, then gives up and continues"
	}
	return "checks a port, not health"
}

// edge returns the edge from the container for which the hook waits to the given container, with the given
// mechanism.
func (w hookWait) edge(r *reader, to string, by startup.Mechanism) startup.Edge {
	e := r.after(w.from, to, by)
	if w.port || w.givesUp && by == startup.Hold {
		e.After = startup.Started
	}
	return e
}

func (r *reader) hookWait(c podContainer) (hookWait, bool) {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return hookWait{}, false
	}
	field := c.field() + ".lifecycle.postStart"
	switch h := c.Lifecycle.PostStart; {
	case h.Exec != nil:
		w, ok := r.waits(c, h.Exec.Command)
		w.field, w.text = field+".exec.command", strings.Join(h.Exec.Command, " ")
		return w, ok
	case h.HTTPGet != nil && !strings.HasPrefix(h.HTTPGet.Path, istioHooks):
		port := PortNumber(c.Container, h.HTTPGet.Port)
		from := r.listener(port)
		// The kubelet makes one request as soon as the container has started, so the container itself cannot be
		// ready yet.
		w := hookWait{from: from, by: "httpGet", field: field + ".httpGet", text: ":" + strconv.Itoa(port) + h.HTTPGet.Path}
		return w, from != "" && from != c.Name
	}
	return hookWait{}, false
}

// istioHooks is the prefix of the paths at which Istio's agent receives httpGet hooks of apps, to forward them.
// Istio's injection replaces such hooks; see its pkg/kube/inject/app_probe.go.
const istioHooks = "/app-lifecycle/"

// holdsItself reports whether the postStart hook of c blocks until c itself is healthy.
func (r *reader) holdsItself(c podContainer) bool {
	w, ok := r.waitsForItself(c)
	return ok && w.untilHealthy()
}

// waitsForItself returns the wait of a postStart hook for its own container, also if it checks only the port.
func (r *reader) waitsForItself(c podContainer) (hookWait, bool) {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil || c.Lifecycle.PostStart.Exec == nil {
		return hookWait{}, false
	}
	w, ok := r.waits(c, c.Lifecycle.PostStart.Exec.Command)
	return w, ok && w.from == c.Name
}

func hookText(c podContainer) string { return strings.Join(c.Lifecycle.PostStart.Exec.Command, " ") }

// waits finds the container for which a command in c waits. It recognises known programs, and scripts with a loop
// that polls a port.
func (r *reader) waits(c podContainer, argv []string) (hookWait, bool) {
	if s, ok := shell.ScriptOf(argv); ok {
		return r.scriptWaits(c, s, false)
	}
	return r.waiter(c, argv)
}

// scriptWaits finds the container for which a script waits. goesOn says that what the script is part of goes on if the
// script fails.
func (r *reader) scriptWaits(c podContainer, s shell.Script, goesOn bool) (hookWait, bool) {
	all, errexit := shell.Statements(s.Text), s.Errexit
	for i, st := range all {
		errexit = errexit || st.Errexits()
		w, ok := r.statementWaits(c, all[i:], errexit)
		if !ok {
			continue
		}
		if s.Limit > 0 && (w.timeout == 0 || s.Limit < w.timeout) {
			w.timeout, w.givesUp = s.Limit, goesOn
		}
		return w, true
	}
	return hookWait{}, false
}

// statementWaits finds the container for which the first of the statements waits. The other statements decide
// what a timeout causes.
func (r *reader) statementWaits(c podContainer, all []shell.Statement, errexit bool) (hookWait, bool) {
	s := all[0]
	if s.Then == "&" {
		return hookWait{}, false // a background job: the next statements do not wait for it
	}
	var next *shell.Statement
	if len(all) > 1 {
		next = &all[1]
	}
	if w, ok := r.waiter(c, s.Program()); ok {
		w.givesUp = w.timeout > 0 && !s.AbortsScript(next, errexit)
		return w, true
	}
	if inner, ok := shell.ScriptOf(s.Program()); ok {
		return r.scriptWaits(c, inner, !s.AbortsScript(next, errexit))
	}
	port, polls := s.PolledPort()
	if !polls || !s.Polls() {
		return hookWait{}, false
	}
	w := hookWait{from: r.listener(port), by: "health loop"}
	w.port = !s.ChecksHealth() && !r.healthyByPort(w.from, port)
	if w.givesUp = s.IsLoop() && !s.Unbounded() && !s.FailsAfter(next) || !s.IsLoop() && !s.AbortsScript(next, errexit); w.givesUp {
		w.timeout = s.Lasts()
	}
	return w, w.from != ""
}

// healthyByPort reports whether the container's health is defined by this port alone being open.
func (r *reader) healthyByPort(name string, port int) bool {
	for _, c := range r.all {
		if c.Name == name {
			p := ownProbe(c.Container)
			return p != nil && p.TCPSocket != nil && PortNumber(c.Container, p.TCPSocket.Port) == port
		}
	}
	return false
}

// waiter recognises a known program that waits for a container, at the beginning of argv.
func (r *reader) waiter(c podContainer, argv []string) (hookWait, bool) {
	w, ok := knownproxy.WaitOf(argv)
	if !ok {
		return hookWait{}, false
	}
	from, program := c.Name, path.Base(argv[0])
	if !slices.Contains(argv, "--probe") && !slices.Contains(w.Proxies, c.Name) && serverOf(c.Container) != program {
		from = r.runner(program)
		if from == "" || slices.ContainsFunc(w.Proxies, r.has) {
			from = r.firstOf(w.Proxies)
		}
	}
	return hookWait{from: from, by: w.Program, timeout: w.Timeout}, true
}

// runner returns the container whose program has that name; empty if there is none.
func (r *reader) runner(program string) string {
	i := slices.IndexFunc(r.all, func(c podContainer) bool { return serverOf(c.Container) == program })
	if i < 0 {
		return ""
	}
	return r.all[i].Name
}

// writeHold lists the container e.From before e.To, and adds a hook to e.From that blocks until e.From is
// healthy.
func (w *writer) writeHold(e startup.Edge) error {
	list := w.out.Spec.Containers
	if !slices.ContainsFunc(list, containerNamed(e.From)) || !slices.ContainsFunc(list, containerNamed(e.To)) {
		return w.fail(e, "hold works between plain containers only")
	}
	if e.After != startup.Healthy {
		return w.fail(e, podstart.HoldNeedsHealth(e.After))
	}
	list = podstart.OrderForHold(list, func(c corev1.Container) string { return c.Name }, e, w.needs)
	w.out.Spec.Containers = list
	return w.blockUntilHealthy(e, &list[slices.IndexFunc(list, containerNamed(e.From))])
}

func containerNamed(name string) func(corev1.Container) bool {
	return func(c corev1.Container) bool { return c.Name == name }
}
