package chain

import (
	"fmt"
	"time"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// Anew changes the finding about an init container that failed while an application runs since long before: the kubelet runs
// one that has completed again if its container was removed from the node, in the network that its first run has left.
// Source: kubernetes pkg/kubelet/kuberuntime, findNextInitContainerToRun.
func (c *Case) Anew(f *result.Finding, init string, r evidence.Run) {
	for _, app := range c.Apps {
		last := app.Last()
		if app.Kind != startup.Plain || last == nil || !last.Running || last.Number > 0 {
			continue
		}
		if least, _, known := r.Started.Since(last.Started); !known || least < time.Minute {
			continue
		}
		f.Code, f.Container, f.Confidence = "app-crash", init, result.Likely
		f.Sentence = fmt.Sprintf("%s was run again, most likely since its container was removed from the node, and fails, as what its first run has set up is there; %s runs on", init, app.Name)
		f.Evidence = append(f.Evidence, c.Quote(last.Started, "%s started, and runs since", app.Name))
		f.Disproof = "an entry of the container of its first run on the node"
		f.Remedy.Sentence = "delete the pod, so that a new one starts in order, and let what cleans the node (docker system prune, crictl rm) leave containers that have ended to the kubelet"
		return
	}
}
