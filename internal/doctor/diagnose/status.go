package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// imageReasons lists the waiting reasons of the kubelet for an image that is missing. Source:
// k8s.io/kubernetes/pkg/kubelet/images.
var imageReasons = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}

// notStarted finds containers whose image cannot be pulled, and pods that have no node, no sandbox or no volume.
func notStarted(s *subject) (out []Finding) {
	for _, c := range s.Containers {
		if c.Waiting == nil || !slices.Contains(imageReasons, c.Waiting.Reason) {
			continue
		}
		image := ""
		if spec := specOf(s.Object, c.Name); spec != nil {
			image = spec.Image
		}
		f := Finding{
			Code: "image-missing", Container: c.Name, Confidence: Certain,
			Sentence: fmt.Sprintf("%s has no image: %s cannot be pulled (%s)", c.Name, image, c.Waiting.Reason),
			Evidence: []Quote{s.quote(evidence.Time{}, fmt.Sprintf("%s waits: %s %s", c.Name, c.Waiting.Reason, c.Waiting.Message))},
			Disproof: "an event Pulled of this container",
			Remedy:   finding.Remedy{Sentence: "correct the image's name, or the pull secret of the pod", Command: s.kubectl("describe pod %s", s.Object.Name)},
		}
		f.Evidence = append(f.Evidence, s.events(c.Name, "Failed", "BackOff")...)
		out = append(out, f)
	}
	started := slices.ContainsFunc(s.Containers, func(c *evidence.Container) bool { return len(c.Runs) > 0 })
	if started || len(out) > 0 {
		return out
	}
	for _, k := range []struct {
		code   finding.Code
		reason string
		what   string
	}{
		{"not-scheduled", "FailedScheduling", "no node can run the pod"},
		{"no-sandbox", "FailedCreatePodSandBox", "the pod's sandbox, or its network, cannot be created"},
		{"volume-missing", "FailedMount", "a volume of the pod cannot be mounted"},
	} {
		if q := s.events("", k.reason); len(q) > 0 {
			out = append(out, Finding{
				Code: k.code, Confidence: Certain, Sentence: fmt.Sprintf("%s: %s", k.what, q[len(q)-1].Text), Evidence: q,
				Disproof: "a container of the pod that started", Remedy: finding.Remedy{Command: s.kubectl("describe pod %s", s.Object.Name)},
			})
		}
	}
	return out
}

// events quotes the events that have one of the reasons. If container is not empty, they must be about it.
func (s *subject) events(container string, reasons ...string) (out []Quote) {
	for _, e := range s.Events {
		if slices.Contains(reasons, e.Reason) && (container == "" || e.Container == container) {
			text := e.Reason + ": " + e.Message
			if e.Count > 1 {
				text += fmt.Sprintf(" (%d times)", e.Count)
			}
			out = append(out, Quote{e.Source, e.First, s.show([]byte(text))})
		}
	}
	return out
}

// initWithoutNetwork finds init containers whose calls fail because they are captured and the proxy starts later.
func initWithoutNetwork(s *subject) (out []Finding) {
	if s.proxy == nil || s.proxy.Kind == startup.Sidecar || s.capture.None != "" {
		return nil
	}
	for _, c := range s.inits {
		for _, y := range s.symptoms {
			if y.container != c.Name || y.kind != refused && y.kind != timedOut && y.kind != reset {
				continue
			}
			takes, why := s.capture.Takes(c.Name, y.to)
			if takes == no || !s.captureFirst(c.Name) {
				continue
			}
			f := Finding{
				Code: "init-needs-network", Container: c.Name, Confidence: Certain,
				Sentence: fmt.Sprintf("init container %s has no network: its calls go to %s, which starts only when all init containers have ended", c.Name, s.proxy.Name),
				Evidence: []Quote{y.quote, s.quote(evidence.Time{}, fmt.Sprintf("%s is a plain container, and the capture is written before %s", s.proxy.Name, c.Name))},
				Disproof: fmt.Sprintf("that %s is left out of the capture", y.to),
				Remedy:   finding.Remedy{Sentence: fmt.Sprintf("make %s a native sidecar, which starts before %s", s.proxy.Name, c.Name)},
				Patch:    s.nativePatch(c.Name),
			}
			if takes == perhaps {
				f.Confidence, f.Against = Likely, []Quote{s.quote(evidence.Time{}, why)}
			}
			out = append(out, f)
			break
		}
	}
	return out
}

// captureFirst reports whether the capture rules are written before this init container runs.
func (s *subject) captureFirst(container string) bool {
	for _, i := range s.Object.Spec.InitContainers {
		switch {
		case strings.HasSuffix(i.Name, "-init") && s.mesh(i.Name):
			return true
		case i.Name == container:
			return !slices.ContainsFunc(s.Object.Spec.InitContainers, func(i corev1.Container) bool { return strings.HasSuffix(i.Name, "-init") && s.mesh(i.Name) })
		}
	}
	return false
}

// nativePatch returns a patch with the annotation that makes the proxy start before an init container, or an empty
// string if the mesh has no such annotation.
func (s *subject) nativePatch(container string) string {
	w, has := stronger[s.proxy.Name]
	switch {
	case s.proxy.Name == podspec.OurProxy:
		w = way{annotation: contract.DependsOn + "." + container, value: s.proxy.Name}
	case !has:
		return ""
	}
	return s.annotate(w)
}

// unready lists the reasons why a proxy is not ready. said is the name of the pattern in proxyTexts that shows the
// reason.
var unready = []struct {
	said   string
	code   finding.Code
	what   string
	remedy string
}{
	{"rejected", "configuration-rejected", "it rejects its configuration", "see the message for the field: it is of a resource that was changed, an EnvoyFilter for instance"},
	{"no-control-plane", "no-control-plane", "it does not reach its control plane", "see whether the control plane runs, and whether a NetworkPolicy lets the pod reach it"},
	{"uncaptured", "capture-not-in-place", "connections do not come to it", captureRemedy},
	{"no-certificate", "no-certificate", "it has no certificate", "see whether the control plane signs, and whether the pod's token and roots are current"},
}

const captureRemedy = "run outrider-agent capture again in a container of the pod with NET_ADMIN, or make a new pod, and find the program that removed the rules or wrote others (nft list ruleset, iptables-save)"

// captureLost finds proxies to which connections no longer came, by the agent's proofs, and whether they come again.
func captureLost(s *subject) (out []Finding) {
	if s.proxy == nil || len(s.serving) == 0 {
		return nil
	}
	f := Finding{
		Code: "capture-not-in-place", Container: s.proxy.Name, Confidence: Certain,
		Disproof: "a call of that direction and family of IP in the proxy's access log at that time",
		Remedy:   finding.Remedy{Sentence: captureRemedy},
	}
	lost, back := Quote{}, Quote{}
	for _, q := range s.known.in(s.serving[len(s.serving)-1].Number, "capture") {
		switch {
		case strings.Contains(q.Text, "does not hold"):
			lost, back = q, Quote{}
		case lost.Text != "":
			back = q
		}
	}
	switch {
	case lost.Text == "":
		return nil
	case back.Text == "":
		f.Sentence = fmt.Sprintf("connections go past %s: the rules of the capture are missing, or others act in their place", s.proxy.Name)
		f.Evidence = []Quote{lost}
	default:
		f.Sentence = fmt.Sprintf("connections went past %s for a while: the rules of the capture did not act, and do again", s.proxy.Name)
		f.Evidence = []Quote{lost, back}
		f.Remedy.Sentence = "find the program that removed the rules or wrote others"
	}
	return []Finding{f}
}

// neverReady finds proxies that run without becoming ready, and why.
func neverReady(s *subject) (out []Finding) {
	if s.proxy == nil || s.proxy.Waiting != nil && len(s.proxy.Runs) == 0 {
		return nil
	}
	status := statusOf(s.Object, s.proxy.Name)
	if status == nil || status.Ready || status.State.Running == nil || s.Object.DeletionTimestamp != nil {
		return nil
	}
	now := s.serving[len(s.serving)-1]
	// Envoy's log line about starting its workers does not prove that it is ready: it may have rejected the listener
	// that its readiness probe needs.
	workersAlone := isWorkers(now.ready.Text) && len(s.known.in(now.Number, "rejected")) > 0
	if now.ready.At.Known() && !workersAlone {
		return nil
	}
	f := Finding{
		Code: "proxy-not-ready", Container: s.proxy.Name, Confidence: Likely,
		Sentence: fmt.Sprintf("%s is not ready, and its log does not say why", s.proxy.Name),
		Evidence: append([]Quote{s.quote(now.Started, fmt.Sprintf("%s runs and is not ready", s.proxy.Name))}, s.events(s.proxy.Name, "Unhealthy")...),
		Disproof: fmt.Sprintf("a readiness probe of %s that succeeds", s.proxy.Name),
		Remedy:   finding.Remedy{Command: s.kubectl("logs %s -c %s", s.Object.Name, s.proxy.Name)},
	}
	if age, _, ok := s.Taken.Since(now.Started); ok && age < settled {
		f.Confidence = Possible // it may still become ready
	}
	for _, u := range unready {
		if q := s.known.in(now.Number, u.said); len(q) > 0 {
			f.Code, f.Confidence = u.code, Certain
			f.Sentence = fmt.Sprintf("%s is not ready: %s", s.proxy.Name, u.what)
			f.Evidence = append(f.Evidence, q[len(q)-1])
			f.Remedy.Sentence = u.remedy
			break
		}
	}
	return []Finding{f}
}

// killedByProbe finds containers that the kubelet killed because a liveness or startup probe failed.
func killedByProbe(s *subject) (out []Finding) {
	for _, c := range s.Containers {
		for _, e := range s.Events {
			if e.Container != c.Name || e.Reason != "Killing" || !strings.Contains(e.Message, "probe") {
				continue
			}
			kind := "liveness"
			if strings.Contains(e.Message, "startup") {
				kind = "startup"
			}
			f := Finding{
				Code: "killed-by-probe", Container: c.Name, Confidence: Certain,
				Sentence: fmt.Sprintf("%s was killed because its %s probe failed", c.Name, kind),
				Evidence: append([]Quote{{e.Source, e.First, s.show([]byte(e.Message))}}, s.events(c.Name, "Unhealthy")...),
				Disproof: fmt.Sprintf("an end of %s before the event", c.Name),
				Remedy:   finding.Remedy{Sentence: fmt.Sprintf("check the target of the %s probe of %s, and give it more time", kind, c.Name)},
			}
			if edge, waits := s.waits(c.Name); waits && s.killedWaiting(c) {
				f.Code = "killed-while-waiting"
				f.Sentence = fmt.Sprintf("%s was killed by its %s probe while it waited for %s", c.Name, kind, s.proxy.Name)
				f.Evidence = append(f.Evidence, s.quote(evidence.Time{}, "its order: "+edge.String()))
				f.Remedy.Sentence = fmt.Sprintf("give %s a startup probe that lasts longer than %s needs", c.Name, s.proxy.Name)
			}
			out = append(out, f)
			break
		}
	}
	return out
}

// killedWaiting reports whether a run of the container ended before the proxy was ready.
func (s *subject) killedWaiting(c *evidence.Container) bool {
	for _, r := range c.Runs {
		if listens, _, _ := s.listened(r.Finished); r.Finished.Known() && listens == no {
			return true
		}
	}
	return false
}

// outOfMemory finds applications that the kernel killed.
func outOfMemory(s *subject) (out []Finding) {
	for _, c := range append(slices.Clone(s.apps), s.inits...) {
		for _, r := range c.Runs {
			if r.Reason != "OOMKilled" {
				continue
			}
			out = append(out, Finding{
				Code: "out-of-memory", Container: c.Name, Confidence: Certain,
				Sentence: fmt.Sprintf("%s ran out of memory", c.Name),
				Evidence: []Quote{s.quote(r.Finished, fmt.Sprintf("%s, run %d: OOMKilled, exit code %d", c.Name, r.Number, *r.Exit))},
				Disproof: "a message of the kernel that another process of the pod was the one killed",
				Remedy:   finding.Remedy{Sentence: fmt.Sprintf("raise the memory limit of %s (%s), or find out what uses it", c.Name, s.memoryLimit(c.Name))},
			})
			break
		}
	}
	return out
}

// jobDoesNotEnd finds pods that should end (restartPolicy Never or OnFailure), but whose proxy still runs after all
// applications have completed.
func jobDoesNotEnd(s *subject) []Finding {
	once := s.Object.Spec.RestartPolicy == corev1.RestartPolicyNever || s.Object.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	if !once || s.proxy == nil || s.proxy.Kind == startup.Sidecar || len(s.apps) == 0 || s.proxy.Last() == nil || !s.proxy.Last().Running {
		return nil
	}
	var ended []Quote
	for _, c := range s.apps {
		r := c.Last()
		if r == nil || r.Exit == nil || *r.Exit != 0 {
			return nil
		}
		ended = append(ended, s.quote(r.Finished, fmt.Sprintf("%s completed", c.Name)))
	}
	kind, name := s.workload()
	return []Finding{{
		Code: "job-never-ends", Container: s.proxy.Name, Confidence: Certain,
		Sentence: fmt.Sprintf("the %s cannot end: its work is done, and %s runs on", kind, s.proxy.Name),
		Evidence: append(ended, s.quote(s.proxy.Last().Started, fmt.Sprintf("%s runs", s.proxy.Name))),
		Disproof: fmt.Sprintf("an end of %s soon after", s.proxy.Name),
		Remedy:   finding.Remedy{Sentence: fmt.Sprintf("make %s a native sidecar, which ends with the pod's work; this pod ends when its proxy is told to exit", s.proxy.Name), Command: s.quit()},
		Patch:    cmp.Or(s.nativePatch(name), ""),
	}}
}

// quit returns a command that makes the proxy exit, or that deletes the pod if no request makes the proxy exit.
func (s *subject) quit() string {
	switch s.proxy.Name {
	case "outrider-proxy":
		return s.kubectl("exec %s -c %s -- outrider-agent request POST /quitquitquit", s.Object.Name, s.proxy.Name)
	case "istio-proxy":
		return s.kubectl("exec %s -c %s -- pilot-agent request POST /quitquitquit", s.Object.Name, s.proxy.Name)
	}
	return s.kubectl("delete pod %s", s.Object.Name)
}

// mesh reports whether a container was added by the mesh of the pod's proxy.
func (s *subject) mesh(name string) bool {
	if s.proxy == nil {
		return false
	}
	mesh, _ := knownproxy.MeshOf(s.proxy.Name)
	return slices.Contains(mesh.Init, name)
}
