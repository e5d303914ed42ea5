package podspec

import (
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/startup"
)

// initDone recognises a regular init container. Everything listed after it starts when it has completed.
func initDone(r *reader, c podContainer) {
	if c.kind != startup.Init {
		return
	}
	f := podstart.Found{Container: c.Name, Mechanism: startup.InitDone, By: "init container", Evidence: podstart.Evidence{Field: c.field(), Text: "name: " + c.Name}}
	f.Edges = make([]startup.Edge, 0, len(r.all)-c.at-1)
	for _, to := range r.all[c.at+1:] {
		f.Edges = append(f.Edges, startup.Edge{From: c.Name, To: to.Name, After: startup.Completed, By: startup.InitDone})
	}
	r.add(f)
}
