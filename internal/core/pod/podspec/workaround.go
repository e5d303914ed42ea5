package podspec

import (
	"slices"
	"strings"

	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// workaround recognises waits that people put before the real command of a container: a loop that polls a health
// port, a program that waits, or a sleep.
func workaround(r *reader, c podContainer) {
	argv := c.argv()
	s, ok := shell.ScriptOf(argv)
	if !ok {
		return
	}
	all, errexit := shell.Statements(s.Text), s.Errexit
	for i, st := range all {
		last := i == len(all)-1
		errexit = errexit || st.Errexits()
		end := len(s.Text) - len(strings.TrimLeft(s.Text[st.End:], " \t\r\n"))
		begin := st.Start
		if i > 0 && all[i-1].Announces() { // what it prints is no longer true without the wait
			begin = all[i-1].Start
		}
		if i+2 < len(all) && all[i+1].Announces() {
			end = len(s.Text) - len(strings.TrimLeft(s.Text[all[i+1].End:], " \t\r\n"))
		}
		f := podstart.Found{Container: c.Name, Replaceable: !last,
			Evidence: podstart.Evidence{Field: c.argField(s.At), Text: s.Text[st.Start:st.End]}, Cut: [2]int{begin, end}}
		d, sleeps := st.Sleeps()
		w, waits := r.statementWaits(c, all[i:], errexit)
		switch {
		case sleeps && !last:
			f.Mechanism, f.By, f.Lasts = startup.Sleep, "sleep "+d.String(), d
			if proxy := r.proxy(); proxy != "" && !r.startsAfter(proxy, c) {
				f.Edges = []startup.Edge{r.after(proxy, c.Name, startup.Sleep)}
			} else {
				r.Note(c.Name + " sleeps " + d.String() + " before it begins; it is unknown what it waits for")
			}
		case waits && last && c.kind == startup.Plain:
			return // there is nothing that it delays
		case waits && w.from != c.Name:
			f.Mechanism, f.By = startup.HealthLoop, w.by
			e := w.edge(r, c.Name, startup.HealthLoop)
			e.Timeout = w.timeout
			if w.givesUp {
				f.Mechanism, f.Lasts = startup.BoundedLoop, w.timeout
				e.By, e.Timeout = startup.BoundedLoop, 0 // it polls for that long and then continues
			}
			f.Edges = []startup.Edge{e}
		case st.Neutral():
			continue
		default:
			return // the real command
		}
		f.Evidence.Text = strings.TrimRight(strings.TrimSpace(f.Evidence.Text), ";& \n")
		r.add(f)
	}
}

// startsAfter reports whether the named container is c itself, or one that the kubelet starts only after c. A
// pause in c is not a wait for such a container.
func (r *reader) startsAfter(name string, c podContainer) bool {
	return c.kind != startup.Plain && slices.ContainsFunc(r.all[c.at:], func(o podContainer) bool { return o.Name == name }) || name == c.Name
}
