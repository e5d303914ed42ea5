package podspec

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// hook recognises a postStart hook that waits. A hook that waits for its own container holds the plain
// containers listed after it. A hook that waits for another container is a work-around, which runs at the
// same time as its container's command.
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
				e.Timeout = 0 // no timeout is known
			}
			if e.Timeout == 0 {
				e.OnTimeout = startup.Fail
			}
			f.Edges = append(f.Edges, e)
		}
	default:
		return // native handles a sidecar's hook
	}
	r.add(f)
	if len(f.Edges) == 0 {
		r.Note("the postStart hook of " + c.Name + " has no effect: no container is listed after it")
	}
}

// A hookWait is a postStart hook that waits for a container.
type hookWait struct {
	from    string
	by      string
	field   string
	text    string
	timeout time.Duration // 0: it waits for ever
	givesUp bool          // after that it continues without an answer
	port    bool          // it checks whether the port is open, not for health
}

// untilHealthy reports whether the container is healthy when the wait for it is over.
func (w hookWait) untilHealthy() bool { return !w.givesUp && !w.port }

// weakness says why the wait is not one for health.
func (w hookWait) weakness() string {
	if w.givesUp {
		return "polls a number of times, then gives up and continues"
	}
	return "checks a port, not health"
}

// edge returns the edge of the wait, with the given mechanism.
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
		// The kubelet makes one request, at once, so it cannot wait for the container itself.
		w := hookWait{from: from, by: "httpGet", field: field + ".httpGet", text: ":" + strconv.Itoa(port) + h.HTTPGet.Path}
		return w, from != "" && from != c.Name
	}
	return hookWait{}, false
}

// istioHooks is the path prefix at which Istio's agent receives an app's httpGet hook, and then forwards it.
// Istio's injection rewrites httpGet in this way; see its pkg/kube/inject/app_probe.go.
const istioHooks = "/app-lifecycle/"

// holdsItself reports whether the hook of c blocks until c itself is healthy.
func (r *reader) holdsItself(c podContainer) bool {
	w, ok := r.waitsForItself(c)
	return ok && w.untilHealthy()
}

// waitsForItself returns the wait of a hook for its own container, for its health or only for its port.
func (r *reader) waitsForItself(c podContainer) (hookWait, bool) {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil || c.Lifecycle.PostStart.Exec == nil {
		return hookWait{}, false
	}
	w, ok := r.waits(c, c.Lifecycle.PostStart.Exec.Command)
	return w, ok && w.from == c.Name
}

func hookText(c podContainer) string { return strings.Join(c.Lifecycle.PostStart.Exec.Command, " ") }

// waits finds the container that a command in c waits for: by a known program, or by a
// loop in a script that polls a port.
func (r *reader) waits(c podContainer, argv []string) (hookWait, bool) {
	if s, ok := shell.ScriptOf(argv); ok {
		all, errexit := shell.Statements(s.Text), s.Errexit
		for i, st := range all {
			errexit = errexit || st.Errexits()
			if w, ok := r.statementWaits(c, all[i:], errexit); ok {
				return w, true
			}
		}
		return hookWait{}, false
	}
	return r.waiter(c, argv)
}

// statementWaits finds the container that the first of these statements waits for.
func (r *reader) statementWaits(c podContainer, all []shell.Statement, errexit bool) (hookWait, bool) {
	s := all[0]
	if s.Then == "&" {
		return hookWait{}, false // the next statements do not wait for it
	}
	var next *shell.Statement
	if len(all) > 1 {
		next = &all[1]
	}
	if w, ok := r.waiter(c, s.Program()); ok {
		w.givesUp = w.timeout > 0 && !s.AbortsScript(next, errexit)
		return w, true
	}
	port, polls := s.PolledPort()
	if !polls || !s.Loops() {
		return hookWait{}, false
	}
	w := hookWait{from: r.listener(port), by: "health loop"}
	w.port = !s.ChecksHealth() && !r.healthyByPort(w.from, port)
	if w.givesUp = s.IsLoop() && !s.Unbounded() && !s.FailsAfter(next) || !s.IsLoop() && !s.AbortsScript(next, errexit); w.givesUp {
		w.timeout = s.Lasts()
	}
	return w, w.from != ""
}

// healthyByPort reports whether an open port is all that makes the container healthy.
func (r *reader) healthyByPort(name string, port int) bool {
	for _, c := range r.all {
		if c.Name == name {
			p := ownProbe(c.Container)
			return p != nil && p.TCPSocket != nil && PortNumber(c.Container, p.TCPSocket.Port) == port
		}
	}
	return false
}

// waiter looks for a known program at the beginning of argv.
func (r *reader) waiter(c podContainer, argv []string) (hookWait, bool) {
	for _, w := range waiters {
		if !w.matches(argv) {
			continue
		}
		from := ""
		switch {
		case slices.Contains(argv, "--probe"), slices.Contains(w.proxies, c.Name):
			from = c.Name
		default:
			from = r.firstOf(w.proxies)
		}
		return hookWait{from: from, by: strings.Join(w.words, " "), timeout: w.bound(argv)}, true
	}
	return hookWait{}, false
}

func (w waiter) matches(argv []string) bool {
	if len(argv) < len(w.words) || path.Base(argv[0]) != w.words[0] {
		return false
	}
	return slices.Equal(argv[1:len(w.words)], w.words[1:])
}

// bound returns the time-out of the command line, else the program's default.
func (w waiter) bound(argv []string) time.Duration {
	for i, a := range argv {
		value, ok := strings.CutPrefix(a, "--timeout=")
		if !ok && (a == "--timeout" || a == "-t") && i+1 < len(argv) {
			value, ok = argv[i+1], true
		}
		if d, err := time.ParseDuration(value); ok && err == nil && d > 0 {
			return d
		}
	}
	return w.timeout
}

// writeHold lists From before To and lets its hook block until it is healthy.
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
