package localpod

import (
	"testing"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A container becomes healthy only once, even if the answer of a probe that had timed out arrives during the next
// probe.
func TestHealthyOnce(t *testing.T) {
	p := &Pod{sources: map[string]startup.Health{"app": startup.StartupProbe}}
	p.state = kubelet.New(kubelet.Pod{Containers: []kubelet.Container{{Name: "app", Startup: kubelet.Probe{Handler: kubelet.Exec, Period: time.Second, Timeout: time.Second}}}}, kubelet.Minor(34))
	queue, probes, healthy := []kubelet.Event{{Kind: kubelet.Added}}, 0, 0
	for len(queue) > 0 && probes < 3 {
		e := queue[0]
		queue = queue[1:]
		before := p.state
		after, actions := before.Step(e)
		p.state = after
		if what, ok := p.healthOf(before, e); ok && what == startup.IsHealthy {
			healthy++
		}
		for _, a := range actions {
			if a.Kind != kubelet.RunProbe {
				if answer, ok := a.Answer(a.At, true); ok {
					queue = append(queue, answer)
				}
				continue
			}
			if probes++; probes == 2 { // the first one timed out
				yes := kubelet.Event{At: a.At, Kind: kubelet.ProbeAnswered, Container: "app", Which: kubelet.Startup, OK: true}
				queue = append(queue, yes, yes)
			}
		}
		if next, ok := p.state.Next(); len(queue) == 0 && ok {
			queue = append(queue, kubelet.Event{At: next, Kind: kubelet.Tick})
		}
	}
	if probes < 2 || healthy != 1 {
		t.Errorf("%d probes, healthy %d times", probes, healthy)
	}
}
