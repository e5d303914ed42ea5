package podspec

import (
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// workaround recognises waits that people put before the real command of a container: a loop that polls a health
// port, a program that waits, or a sleep.
func workaround(r *reader, c podContainer) {
	s, ok := shell.ScriptOf(c.argv())
	if !ok {
		return
	}
	all, errexit := shell.Statements(s.Text), s.Errexit
	for i, st := range all {
		last := i == len(all)-1
		errexit = errexit || st.Errexits()
		text := strings.TrimRight(strings.TrimSpace(s.Text[st.Start:st.End]), ";& \n")
		f := podstart.Found{Container: c.Name, Replaceable: !last, Evidence: podstart.Evidence{Field: c.argField(s.At), Text: text}, Cut: span(s.Text, all, i)}
		d, sleeps := st.Sleeps()
		w, waits := r.statementWaits(c, all[i:], errexit)
		switch {
		case sleeps && !last:
			r.add(r.sleep(f, c, d))
		case waits && last && c.kind == startup.Plain:
			return // there is nothing that it delays
		case waits && w.from != c.Name:
			r.add(w.loop(r, f))
		case !st.Neutral():
			return // the real command
		}
	}
}

// span returns the part of a script that is cut with statement i. It includes a statement before and one after it that
// only announce the wait or its end: what they print is no longer true. The last statement of a script stays.
func span(script string, all []shell.Statement, i int) [2]int {
	first, last := i, i
	if i > 0 && all[i-1].Announces() {
		first--
	}
	if i+2 < len(all) && all[i+1].Announces() {
		last++
	}
	return [2]int{all[first].Start, len(script) - len(strings.TrimLeft(script[all[last].End:], " \t\r\n"))}
}

// sleep adds to f that c sleeps before it begins: probably for the pod's proxy, unless that starts only after c.
func (r *reader) sleep(f podstart.Found, c podContainer, d time.Duration) podstart.Found {
	f.Mechanism, f.By, f.Lasts = startup.Sleep, "sleep "+d.String(), d
	if proxy := r.proxy(); proxy != "" && !r.startsAfter(proxy, c) {
		f.Edges = []startup.Edge{r.after(proxy, c.Name, startup.Sleep)}
	} else {
		r.Note(c.Name + " sleeps " + d.String() + " before it begins; it is unknown what it waits for")
	}
	return f
}

// loop adds to f that its container waits for another one, before its command begins.
func (w hookWait) loop(r *reader, f podstart.Found) podstart.Found {
	e := w.edge(r, f.Container, startup.HealthLoop)
	f.Mechanism, f.By, e.Timeout = startup.HealthLoop, w.by, w.timeout
	if w.givesUp { // it polls for that long and then continues
		f.Mechanism, f.Lasts = startup.BoundedLoop, w.timeout
		e.By, e.Timeout = startup.BoundedLoop, 0
	}
	f.Edges = []startup.Edge{e}
	return f
}

// startsAfter reports whether the named container is c itself, or one that the kubelet starts only after c. A
// pause in c is not a wait for such a container.
func (r *reader) startsAfter(name string, c podContainer) bool {
	return c.kind != startup.Plain && slices.ContainsFunc(r.all[c.at:], func(o podContainer) bool { return o.Name == name }) || name == c.Name
}
