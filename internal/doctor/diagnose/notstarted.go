package diagnose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// notStarted finds pods that have no node, no sandbox or no volume.
func notStarted(s *subject) (out []result.Finding) {
	started := slices.ContainsFunc(s.Containers, func(c *evidence.Container) bool { return len(c.Runs) > 0 })
	if started {
		return nil
	}
	for _, k := range notStartedBy {
		q := s.QuoteEvents("", k.reason)
		if placed := s.Object.Spec.NodeName != ""; len(q) == 0 || placed && k.code == "not-scheduled" {
			continue
		}
		text := strings.TrimPrefix(q[len(q)-1].Text, k.reason+": ")
		f := result.Finding{
			Code: k.code, Confidence: result.Certain, Sentence: fmt.Sprintf("%s: %s", k.what, text), Evidence: q,
			Disproof: "a container of the pod that started", Remedy: finding.Remedy{Sentence: k.do, Command: s.Kubectl("describe pod %s", s.Object.Name)},
		}
		if initKilled.MatchString(text) {
			s.limitTooLow(&f)
		}
		for _, r := range volumeRemedies {
			if k.code == "volume-missing" && r.says.MatchString(text) {
				f.Remedy.Sentence = r.do
				break
			}
		}
		out = append(out, f)
	}
	if f, is := s.unscheduled(); is && len(s.QuoteEvents("", "FailedScheduling")) == 0 {
		out = append(out, f)
	}
	return out
}

// unscheduled returns the finding about a pod without a node, by its condition, which stays when the events are
// forgotten. Gates of the scheduling are meant, so a young pod with one only waits.
func (s *subject) unscheduled() (result.Finding, bool) {
	for _, c := range s.Object.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse {
			continue
		}
		m, known := states.Find(states.Unscheduled, c.Reason, c.Message)
		age, aged := s.Age()
		if !known || c.Reason == corev1.PodReasonSchedulingGated && aged && age < facts.Young {
			return result.Finding{}, false
		}
		f := s.stateOf(m, "", c.Reason, c.Message)
		f.Disproof = "a node of the pod (spec.nodeName)"
		return f, true
	}
	return result.Finding{}, false
}

// initKilled matches what the container runtime says of a container whose memory limit is too low for its first process.
var initKilled = regexp.MustCompile(`(?i)container init was OOM-killed|memory limit too low|minimum memory limit`)

// limitTooLow changes a finding to that of a memory limit with which nothing can start.
func (s *subject) limitTooLow(f *result.Finding) {
	var limits []string
	for _, c := range s.Object.Spec.Containers {
		if m, has := c.Resources.Limits["memory"]; has {
			limits = append(limits, fmt.Sprintf("%s %s", c.Name, m.String()))
		}
	}
	f.Sentence = fmt.Sprintf("a memory limit of the pod is too low: the kernel kills its containers before they start (%s)", strings.Join(limits, ", "))
	f.Code, f.Remedy.Sentence = "out-of-memory", "raise the memory limit: the container runtime itself needs some MiB of it"
}

// notStartedBy has the events by which a pod has no node, no volume or no sandbox, in the order of the steps.
var notStartedBy = []struct {
	code   finding.Code
	reason string
	what   string
	do     string // empty: volumeRemedies says it
}{
	{"not-scheduled", "FailedScheduling", "no node can run the pod", "add a node, or change what the message counts: the pod's requests, its selectors and tolerations, its volumes"},
	{"no-sandbox", "FailedCreatePodSandBox", "the pod's sandbox, or its network, cannot be created", "see the plugin or the runtime that the message names, on the pod's node"},
	{"volume-missing", "FailedAttachVolume", "a volume of the pod cannot be attached to its node", ""},
	{"volume-missing", "FailedMount", "a volume of the pod cannot be mounted", ""},
}

// volumeRemedies has what is to be done about a volume, by the message of the event; the first row that fits counts.
var volumeRemedies = []struct {
	says *regexp.Regexp
	do   string
}{
	{regexp.MustCompile(`(?i)multi-attach|already (?:exclusively attached|used by|attached)`), "the volume is attached to another node: end the pod that uses it there; if that node is off for good, taint it with node.kubernetes.io/out-of-service, or delete the Node"},
	{regexp.MustCompile(`(?i)(?:configmap|secret)s? .*not found|references non-existent`), "create what is missing, or correct its name in the pod template; the kubelet tries again by itself"},
	{regexp.MustCompile(`(?i)persistentvolumeclaim.*not found`), "create the PersistentVolumeClaim, or correct its name in the pod template"},
	{regexp.MustCompile(`(?i)driver name \S+ not found|no such plugin|not registered`), "see whether the CSI driver of the volume runs on this node"},
	{regexp.MustCompile(`(?i)permission denied|access denied|unauthorized|forbidden`), "see the rights on the storage, and the credentials of the driver"},
	{regexp.MustCompile(`(?i)timed out|deadline exceeded`), "see the other events, and the log of the CSI driver on this node and of the controller that attaches volumes"},
	{regexp.MustCompile(`(?i)wrong fs type|bad superblock|exit status 32`), "see whether the volume has a file system, and the node the program to mount it"},
}

// initWithoutNetwork finds init containers whose calls fail because they are captured and the proxy starts later.
func initWithoutNetwork(s *subject) (out []result.Finding) {
	if s.Proxy == nil || s.Proxy.Kind == startup.Sidecar || s.Capture.None != "" {
		return nil
	}
	for _, c := range s.Inits {
		for _, y := range s.Calls.By(c.Name, calls.Refused, calls.TimedOut, calls.Reset) {
			takes, why := s.Capture.Takes(c.Name, y.To)
			if takes == no || !s.CaptureFirst(c.Name) {
				continue
			}
			f := result.Finding{
				Code: "init-needs-network", Container: c.Name, Confidence: result.Certain,
				Sentence: fmt.Sprintf("init container %s has no network: its calls go to %s, which starts only when all init containers have ended", c.Name, s.Proxy.Name),
				Evidence: []evidence.Quote{y.Quote, s.Quote(evidence.Time{}, "%s is a plain container, and the capture is written before %s", s.Proxy.Name, c.Name)},
				Disproof: fmt.Sprintf("that %s is left out of the capture", y.To),
			}
			s.remedy(&f, remedies.Init, s.Proxy.Name, c.Name, y.To.Port)
			if y.Named != nil {
				f.Confidence, f.Evidence = result.Likely, append(f.Evidence, *y.Named)
			}
			if takes == perhaps {
				f.Confidence, f.Against = result.Likely, []evidence.Quote{s.Quote(evidence.Time{}, "%s", why)}
			}
			out = append(out, f)
			break
		}
	}
	return out
}
