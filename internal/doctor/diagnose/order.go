package diagnose

import (
	"fmt"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// orderBroken finds containers that first started earlier than the pod's plan allows. Edges that are kept by a wait
// inside a container, such as a gate, are left out: the end of that wait is not visible in the pod's status.
func orderBroken(s *subject) (out []result.Finding) {
	plan := s.Order.Plan()
	for _, e := range plan.Expand().Edges {
		app := s.Container(e.To)
		if app == nil || e.By == startup.Gate || e.By == startup.PostStartProbe || e.By.WaitsInside() {
			continue
		}
		if _, _, known := s.race(app); known && s.Proxy != nil && e.From == s.Proxy.Name {
			continue
		}
		for _, v := range startup.Check(startup.Plan{Containers: plan.Containers, Edges: []startup.Edge{e}}, s.favouring(e)) {
			if v.How == startup.StartedTooEarly && v.By != startup.Forever {
				out = append(out, s.tooEarly(v, app))
			}
		}
	}
	return out
}

func (s *subject) tooEarly(v startup.Violation, app *evidence.Container) result.Finding {
	e := v.Edge
	f := result.Finding{
		Code: "order-not-kept", Container: app.Name, Confidence: result.Certain, Sentence: v.Sentence(),
		Disproof: fmt.Sprintf("a start of %s after %s was %s", e.To, e.From, e.After),
		Remedy:   finding.Remedy{Sentence: "see which mechanism keeps the order", Command: s.Kubectl("get pod %s -o yaml | outrider plan -f -", s.Object.Name)},
	}
	f.Evidence = append(f.Evidence, s.Quote(app.Run(0).Started, "%s started", app.Name))
	for _, i := range s.Serving {
		if e.From == s.Proxy.Name && i.Number == 0 {
			f.Evidence = append(f.Evidence, i.Ready)
		}
	}
	if r := s.Container(e.From).Run(0); r != nil && r.Finished.Known() {
		f.Evidence = append(f.Evidence, s.Quote(r.Finished, "%s: %s", e.From, facts.RunText(*r)))
	}
	return f
}

// favouring returns a timeline of the first starts of an edge's two containers. Of all times that the clocks' error
// allows, it uses the times with which the edge is kept; so a violation in the timeline is certain. It returns nil if
// one of the starts is not known.
func (s *subject) favouring(e startup.Edge) (t startup.Timeline) {
	from, to := s.Container(e.From), s.Container(e.To)
	if from == nil || to == nil || from.Run(0) == nil || to.Run(0) == nil || !from.Run(0).Started.Known() || !to.Run(0).Started.Known() {
		return nil
	}
	run, begin := *from.Run(0), from.Run(0).Started.At
	add := func(container string, what startup.What, at time.Time) {
		t = append(t, startup.Event{Container: container, What: what, At: at.Sub(begin)})
	}
	add(from.Name, startup.IsStarted, run.Started.At)
	if s.Proxy == from {
		for _, v := range s.Serving {
			if v.Number == 0 && v.Ready.At.Known() && v.Ready.At.Clock == run.Started.Clock {
				add(from.Name, startup.IsHealthy, v.Ready.At.At)
			}
		}
	}
	if run.Finished.Known() && run.Exit != nil {
		what := startup.IsCompleted
		if *run.Exit != 0 {
			what = startup.HasFailed
		}
		add(from.Name, what, run.Finished.At)
	}
	add(to.Name, startup.IsStarted, to.Run(0).Started.Latest())
	return t
}
