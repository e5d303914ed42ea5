package phases

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// SlowStart is the time from which the start of a pod that got ready is slow, unless a caller has another limit. A pod that
// is not ready may take ten minutes.
const SlowStart = 30 * time.Second

// faster maps each phase to advice on how to shorten it.
var faster = map[result.PhaseName]string{
	result.SchedulePhase: "kubectl get events tells why no node took the pod; a cluster that adds nodes on demand needs spare ones to be quick",
	result.SandboxPhase:  "the pod's events tell what its network plugin and its volumes waited for",
	result.ImagePhase:    "smaller images, images that are on the node already (imagePullPolicy: IfNotPresent with a tag that does not move), or a registry that is nearer",
	result.InitPhase:     "do less work before the start: work that needs no order can run concurrently with the application, or once per roll-out in a Job",
	result.ProxyPhase:    "the proxy's log tells what it waited for: its certificate, its control plane, or the size of its configuration; with configuration on demand that does not grow with the mesh",
	result.GatePhase:     "the proxy's log tells what the gate waited for",
	result.AppPhase:      "the application's own log tells what it did; a startup probe gives it that time",
}

// Slow finds a start that took longer than a limit (0: the default), although nothing failed, and names its longest phase.
// It skips pods whose containers restarted, because it is not known when these were ready for the first time.
func Slow(s *facts.Pod, start *result.Start, most time.Duration) []result.Finding {
	least, limit := start.Took.Time-start.Took.Error, SlowStart
	if start.State == result.StartNotReady {
		limit = facts.Young
	}
	if start.AtMost || least <= cmp.Or(most, limit) {
		return nil
	}
	f := result.Finding{
		Code: "slow-start", Confidence: result.Likely,
		Disproof: "the same phase takes as long in other pods of this workload, so it is usual",
		Evidence: []evidence.Quote{s.Quote(evidence.Time{}, "created %s", s.Object.CreationTimestamp.UTC().Format("15:04:05Z"))},
	}
	if start.State == result.StartNotReady {
		f.Sentence = fmt.Sprintf("the pod is not ready %s after it was created", facts.Duration(start.Took.Time))
		if c := awaited(s); c != nil {
			f.Container = c.Name
			started := c.Last().Started // s.Taken is known, because start.Took was computed from it
			f.Sentence += fmt.Sprintf(": %s has run for %s of them", c.Name, facts.Duration(s.Taken.At.Sub(started.At)))
			f.Evidence = append(f.Evidence, s.Quote(started, "%s started, and runs", c.Name))
		}
		f.Remedy = finding.Remedy{Sentence: "its log shows what it does", Command: s.Kubectl("logs %s -c %s --timestamps", s.Object.Name, cmp.Or(f.Container, s.AnyContainer()))}
		return []result.Finding{f}
	}
	f.Sentence = fmt.Sprintf("the pod took %s to get ready", facts.Duration(start.Took.Time))
	took, parts := map[result.PhaseName]time.Duration{}, []string(nil)
	for _, p := range start.Phases {
		took[p.Name] += p.Took.Time
	}
	var slowest result.PhaseName
	for _, name := range result.PhaseNames {
		if took[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", name, facts.Duration(took[name])))
		}
		if took[name] > took[slowest] {
			slowest = name
		}
	}
	if slowest == "" {
		f.Sentence += "; the evidence does not show in which phase"
		f.Remedy = finding.Remedy{Sentence: "its events show what it waited for; they are kept for about an hour", Command: s.Kubectl("get events --field-selector involvedObject.name=%s", s.Object.Name)}
		return []result.Finding{f}
	}
	if took[slowest]*2 > start.Took.Time {
		f.Confidence = result.Certain
	}
	f.Sentence += fmt.Sprintf(", %s of them in the phase %s", facts.Duration(took[slowest]), slowest)
	f.Evidence = append(f.Evidence, s.Quote(evidence.Time{}, "%s", "phases: "+strings.Join(parts, ", ")))
	f.Remedy.Sentence = faster[slowest]
	return []result.Finding{f}
}

// awaited returns the container that keeps a pod from being ready: the running init container, or else the first
// application that runs and is not ready. It returns nil if there is none.
func awaited(s *facts.Pod) *evidence.Container {
	for _, list := range [][]*evidence.Container{s.Inits, s.Apps} {
		at := slices.IndexFunc(list, func(c *evidence.Container) bool {
			status, r := s.Status(c.Name), c.Last()
			return r != nil && r.Running && (c.Kind == startup.Init || status != nil && !status.Ready)
		})
		if at >= 0 {
			return list[at]
		}
	}
	return nil
}
