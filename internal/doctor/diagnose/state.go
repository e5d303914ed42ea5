package diagnose

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
)

// podEnded finds what the status of a pod itself says: it was evicted, not admitted, or lost with its node.
func podEnded(s *subject) (out []result.Finding) {
	status := s.Object.Status
	for _, c := range status.Conditions {
		if m, known := states.Find(states.Disruption, c.Reason, c.Message); c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && known {
			f := s.stateOf(m, "", c.Reason, c.Message)
			f.Evidence = append(f.Evidence, s.ToBeGone()...)
			return []result.Finding{f}
		}
	}
	switch m, known := states.Find(states.Pod, status.Reason, status.Message); {
	case m.Code == "deadline-exceeded" && len(jobDoesNotEnd(s)) > 0: // the consequence
	case known && m.Code != "":
		out = append(out, s.stateOf(m, "", status.Reason, status.Message))
	case status.Reason != "" && !known:
		out = append(out, s.unknown("", status.Reason, status.Message))
	case status.Phase == corev1.PodUnknown:
		out = append(out, s.stateOf(states.Meaning{Code: "node-lost", Sentence: "the pod's node does not answer", Remedy: "see the node (kubectl describe node)"}, "", "Unknown", status.Message))
	}
	return out
}

// containerState finds containers that wait or ended for a reason that is none of their own.
func containerState(s *subject) (out []result.Finding) {
	for _, c := range s.Containers {
		if w := s.Awaited(c); w != nil && w.Reason != "" {
			message := cmp.Or(w.Message, s.LastMessage(c.Name, "Failed"))
			switch m, known := states.Find(states.Waiting, w.Reason, message); {
			case m.Code == "image-missing":
				out = append(out, s.noImage(c, *w, m))
				continue
			case w.Reason == facts.HookError && c == s.Proxy && s.waitedInVain():
				continue // why it was not ready is for another rule
			case known && m.Code != "":
				f := s.stateOf(m, c.Name, w.Reason, message)
				s.beside.NamesKey(&f, message)
				out = append(out, f)
				continue
			case !known:
				out = append(out, s.unknown(c.Name, w.Reason, message))
				continue
			}
		}
		for _, r := range c.Runs {
			m, known := states.Find(states.Terminated, r.Reason, r.Message)
			if s.MadeUp(c) {
				break
			}
			if known && m.Code != "" {
				f := s.stateOf(m, c.Name, r.Reason, r.Message)
				f.Over = m.Code == "node-lost" && r.Number < c.Restarts && c.Last().Running // what fails since then has another cause
				out = append(out, f)
				break
			}
			if !known && r.Reason != "" {
				out = append(out, s.unknown(c.Name, r.Reason, r.Message))
				break
			}
		}
	}
	return out
}

// noImage returns the finding about a container whose image cannot be pulled.
func (s *subject) noImage(c *evidence.Container, w evidence.Waiting, m states.Meaning) result.Finding {
	image, said := "", []string{w.Message}
	if spec := s.Spec(c.Name); spec != nil {
		image = spec.Image
	}
	for _, q := range slices.Backward(s.QuoteEvents(c.Name, "Failed")) {
		said = append(said, q.Text)
	}
	f := result.Finding{
		Code: m.Code, Container: c.Name, Confidence: result.Certain,
		Sentence: fmt.Sprintf("%s has no image: %s (%s)", c.Name, strings.ReplaceAll(cmp.Or(m.Sentence, "{image} cannot be pulled"), "{image}", image), w.Reason),
		Evidence: s.QuoteEvents(c.Name, "Failed", "BackOff"),
		Disproof: "an event Pulled of this container",
		Remedy:   finding.Remedy{Sentence: m.Remedy, Command: s.Kubectl("describe pod %s", s.Object.Name)},
	}
	if c.Waiting != nil && c.Waiting.Reason == w.Reason {
		f.Evidence = append([]evidence.Quote{s.Quote(evidence.Time{}, "%s waits: %s", c.Name, joined(w.Reason, s.Show([]byte(w.Message))))}, f.Evidence...)
	}
	for _, text := range said { // the newest first
		if why, known := states.Find(states.Pulls, w.Reason, text); known {
			f.Sentence, f.Remedy.Sentence = f.Sentence+": "+why.Sentence, why.Remedy
			break
		}
	}
	return f
}

// stateOf returns the finding about a state that is known, of a container or of the pod.
func (s *subject) stateOf(m states.Meaning, container, reason, message string) result.Finding {
	f := result.Finding{
		Code: m.Code, Container: container, Confidence: result.Certain, Sentence: strings.ReplaceAll(m.Sentence, "{c}", container),
		Evidence: []evidence.Quote{s.Quote(evidence.Time{}, "%s", joined(strings.TrimSpace(container+" "+reason), s.Show([]byte(strings.TrimSpace(message)))))},
		Disproof: "a later status of the pod without this reason",
		Remedy:   finding.Remedy{Sentence: strings.ReplaceAll(m.Remedy, "{again}", remedies.Again(s.Object, s.Owners, s.Omitted)), Command: s.Kubectl("describe pod %s", s.Object.Name)},
	}
	said := s.Show([]byte(strings.Join(strings.Fields(message), " ")))
	if reason == facts.HookError {
		said = s.HookSays(message)
	}
	f.Sentence = joined(f.Sentence, said)
	f.Remedy.Sentence = cmp.Or(f.Remedy.Sentence, why.Remedy(said))
	return f
}

// joined returns a reason and its message, if there is one.
func joined(reason, message string) string { return strings.TrimSuffix(reason+": "+message, ": ") }

// unknown returns the finding about a reason that is in no table.
func (s *subject) unknown(container, reason, message string) result.Finding {
	f := s.stateOf(states.Meaning{Code: states.NotKnown, Sentence: fmt.Sprintf("%s is in a state that is not known here: %s", cmp.Or(container, "the pod"), reason)}, container, reason, message)
	f.Confidence = result.Likely
	return f
}

// endedOtherwise finds containers that ended with a status other than 0 and of which no other rule says anything.
func endedOtherwise(s *subject, found []result.Finding) (out []result.Finding) {
	if s.Object.Status.Phase == corev1.PodSucceeded || slices.ContainsFunc(found, func(f result.Finding) bool { return f.Container == "" }) {
		return nil
	}
	for _, c := range s.Containers {
		about := slices.ContainsFunc(found, func(f result.Finding) bool {
			return f.Container == c.Name || f.Code == "hold-fails-open" && c == s.Proxy // which the kubelet ended
		})
		if i := slices.IndexFunc(c.Runs, func(r evidence.Run) bool { return r.Exit != nil && *r.Exit != 0 && s.EndedByStop(c.Name, r) == no }); i >= 0 && !about && c.Kind != evidence.Ephemeral && !skipped(c.Runs[i]) {
			out = append(out, s.crash(c, c.Runs[i]))
		}
	}
	if s.Object.Status.Phase == corev1.PodFailed && !s.Deleted() && len(out)+len(found) == 0 {
		f := s.unknown("", string(corev1.PodFailed), s.Object.Status.Message)
		f.Sentence = "the pod has failed, and the evidence does not say why"
		out = append(out, f)
	}
	return out
}

// skipped reports whether a step of a Tekton TaskRun did not do its work, since one before it had failed.
func skipped(r evidence.Run) bool { return strings.Contains(r.Message, "Skipped") }

// finalizerHolds finds pods in deletion that wait for a finalizer alone.
func finalizerHolds(s *subject) []result.Finding {
	lives := slices.ContainsFunc(s.Containers, func(c *evidence.Container) bool { return c.Last() != nil && c.Last().Running })
	if s.Object.DeletionTimestamp == nil || len(s.Object.Finalizers) == 0 || lives {
		return nil
	}
	names := strings.Join(s.Object.Finalizers, ", ")
	return []result.Finding{{
		Code: "finalizer-holds", Confidence: result.Certain,
		Sentence: "the pod is deleted and stays, since the controller of its finalizer has not removed it: " + names,
		Evidence: []evidence.Quote{s.Quote(evidence.Second(s.Object.DeletionTimestamp.Time, evidence.APIClock), "to be deleted, no container runs, finalizers: %s", names)},
		Disproof: "an object of the pod without the finalizer",
		Remedy:   finding.Remedy{Sentence: "see whether the controller runs that owns the finalizer; when it is gone for good, remove the finalizer by hand", Command: s.Kubectl("patch pod %s --type merge -p '{\"metadata\":{\"finalizers\":null}}'", s.Object.Name)},
	}}
}

// unready returns the verdict about a pod in which no rule found anything, but which is not healthy: it starts, or it
// is not known why.
func (s *subject) unready(lacks []facts.Lack) (result.Verdict, string, []result.Finding) {
	running := slices.IndexFunc(lacks, func(l facts.Lack) bool { return !strings.Contains(l.What, " waits (") }) // others wait for it
	if i := slices.IndexFunc(lacks, func(l facts.Lack) bool { return l.Failed }); i >= 0 && lacks[max(running, 0)].Container == "" {
		running = i
	}
	first := lacks[max(running, 0)]
	if first.Unknown {
		f := s.unknown("", "", "")
		f.Sentence, f.Confidence = "it is not known whether the pod is well: "+first.What, result.Possible
		f.Evidence = []evidence.Quote{s.Quote(evidence.Time{}, "no state of a container, and no condition Ready")}
		f.Remedy.Command = s.Kubectl("get pod %s -o yaml", s.Object.Name)
		return result.Undecided, f.Sentence, []result.Finding{f}
	}
	age, known := s.Age()
	if young := !known || age < facts.Young || first.Probing; young && !first.Again && (!first.Failed || s.Taken.Known()) {
		return result.Starting, "the pod is starting: " + joined(strings.TrimSuffix(first.What+", "+s.WaitsUntil(first.Container), ", "), first.Says), nil
	}
	f := s.unknown(first.Container, "", "")
	since := fmt.Sprintf("%s since %s", first.What, facts.Duration(age))
	if !known || age < facts.Young { // since when its gate is closed is not in the evidence
		since = first.What
	}
	f.Sentence = since + ", and the evidence does not say why"
	f.Evidence = []evidence.Quote{s.Quote(evidence.Time{}, "%s", first.What)}
	f.Disproof = "a line of its log, or an event, that says what it waits for"
	f.Remedy = finding.Remedy{Command: s.Kubectl("logs %s -c %s --timestamps", s.Object.Name, cmp.Or(first.Container, s.AnyContainer()))}
	if first.Gate != "" {
		m, _ := states.Find(states.Gates, first.Gate, first.Says)
		f.Disproof, f.Remedy = "a later status of the pod in which the condition is true", finding.Remedy{Sentence: m.Remedy, Command: s.Kubectl("get pod %s -o yaml", s.Object.Name)}
	}
	if first.Says == "" && first.Gate == "" {
		says, told, quotes := s.SaysOf(first.Container)
		if until := s.WaitsUntil(first.Container); until != "" {
			says = strings.TrimSuffix("by its command, it only waits "+until+"; "+says, "; ")
		}
		if says != "" {
			f.Sentence, f.Evidence = since+"; "+says, append(f.Evidence, quotes...)
			f.Remedy.Sentence = cmp.Or(told, f.Remedy.Sentence)
		}
	}
	if first.Says != "" {
		f.Sentence = since + ": " + first.Says
		f.Evidence = []evidence.Quote{s.Quote(evidence.Time{}, "%s: %s", first.What, first.Says)}
	}
	s.beside.About(&f, path.Base(first.Gate), s.Object.Name)
	return result.Found, f.Sentence, []result.Finding{f}
}
