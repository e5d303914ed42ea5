package podspec

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/startup"
)

// hook recognises a postStart that waits. In the container that it waits for it
// holds the plain containers listed after it; in any other one it is a
// work-around, which runs beside the command.
func hook(r *reader, c carrier) {
	w, ok := r.hookWait(c)
	if !ok {
		return
	}
	f := Found{Container: c.Name, By: w.by, Evidence: Evidence{w.field, w.text}, Replaceable: true}
	switch {
	case w.from != c.Name:
		f.Mechanism = startup.PostStartProbe
		f.Edges = []startup.Edge{r.after(w.from, c.Name, startup.PostStartProbe)}
	case c.kind == startup.Plain:
		f.Mechanism = startup.Hold
		for _, to := range r.all[c.at+1:] {
			e := r.after(c.Name, to.Name, startup.Hold)
			e.Timeout, e.OnTimeout = w.timeout, startup.Continue
			if w.timeout == 0 {
				e.OnTimeout = startup.Fail
			}
			f.Edges = append(f.Edges, e)
		}
	default:
		return // of a sidecar: native says it
	}
	r.add(f)
	if len(f.Edges) == 0 {
		r.Notes = append(r.Notes, "the postStart hook of "+c.Name+" holds nobody: no container is listed after it")
	}
}

// A hookWait is a postStart hook that waits for a container.
type hookWait struct {
	from    string
	by      string
	field   string
	text    string
	timeout time.Duration
}

func (r *reader) hookWait(c carrier) (hookWait, bool) {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return hookWait{}, false
	}
	field := c.field() + ".lifecycle.postStart"
	switch h := c.Lifecycle.PostStart; {
	case h.Exec != nil:
		w, ok := r.waits(c, h.Exec.Command)
		w.field, w.text = field+".exec.command", strings.Join(h.Exec.Command, " ")
		return w, ok
	case h.HTTPGet != nil:
		port := r.port(c, h.HTTPGet.Port)
		from := r.listens(port)
		// One request, at once: it cannot wait for the container itself.
		w := hookWait{from: from, by: "httpGet", field: field + ".httpGet", text: ":" + strconv.Itoa(port) + h.HTTPGet.Path}
		return w, from != "" && from != c.Name
	}
	return hookWait{}, false
}

// holdsItself says whether the hook of c blocks until c itself is healthy.
func (r *reader) holdsItself(c carrier) bool {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil || c.Lifecycle.PostStart.Exec == nil {
		return false
	}
	w, ok := r.waits(c, c.Lifecycle.PostStart.Exec.Command)
	return ok && w.from == c.Name
}

func hookText(c carrier) string { return strings.Join(c.Lifecycle.PostStart.Exec.Command, " ") }

// waits says for whom a command in container c waits: a known waiter, or a loop
// in a script that asks a port.
func (r *reader) waits(c carrier, argv []string) (hookWait, bool) {
	if s, ok := shellScript(argv); ok {
		for _, st := range statements(s.text) {
			if w, ok := r.statementWaits(c, st); ok {
				return w, true
			}
		}
		return hookWait{}, false
	}
	return r.waiter(c, argv)
}

func (r *reader) statementWaits(c carrier, s statement) (hookWait, bool) {
	if w, ok := r.waiter(c, s.program()); ok {
		return w, true
	}
	port, asks := s.asksPort()
	if !asks || !s.loops() {
		return hookWait{}, false
	}
	from := r.listens(port)
	return hookWait{from: from, by: "health loop"}, from != ""
}

// waiter looks for a known program at the beginning of argv.
func (r *reader) waiter(c carrier, argv []string) (hookWait, bool) {
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

// bound is the time-out of the command line, else the program's own.
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

// writeHold makes from the first of the two in the list of plain containers and
// lets its hook block until it is healthy.
func (w *writer) writeHold(e startup.Edge) error {
	list := w.out.Spec.Containers
	from := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == e.From })
	to := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == e.To })
	if from < 0 || to < 0 {
		return w.fail(e, "hold works between plain containers only")
	}
	if from > to {
		c := list[from]
		w.out.Spec.Containers = slices.Insert(slices.Delete(list, from, from+1), to, c)
		from = to
	}
	if e.After == startup.Started {
		return w.fail(e, "a hook holds until its container is healthy; nothing tells started from it")
	}
	return w.blockUntilHealthy(e, &w.out.Spec.Containers[from])
}
