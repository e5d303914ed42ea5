package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// helperNames are parts of names and images of containers that serve others and do not end by themselves.
var helperNames = []string{"proxy", "sidecar", "agent", "fluent", "filebeat", "promtail", "vector", "collector", "otel", "otc-", "exporter", "statsd", "dind", "docker", "vault", "envoy", "daprd", "pgbouncer", "log-"}

// loops are commands that never end.
var loops = []string{"sleep inf", "while true", "while :", "tail -f", "tail -F"}

// jobDoesNotEnd finds pods that should end (restartPolicy Never or OnFailure), but one of whose helpers still runs after all other
// containers have completed, or had to be ended by the pod's deadline.
func jobDoesNotEnd(s *subject) []Finding {
	policy := s.Object.Spec.RestartPolicy
	if policy != corev1.RestartPolicyNever && policy != corev1.RestartPolicyOnFailure || s.Deleted() && !s.deadlinePassed() {
		return nil
	}
	var holder *evidence.Container
	sure := false
	var ended []evidence.Quote
	for _, c := range s.Containers {
		r := c.Last()
		if c.Kind != startup.Plain {
			continue
		}
		if r == nil {
			return nil
		}
		late := r.Signal != 0 && s.deadlinePassed()
		helper, known := s.serves(c)
		switch {
		case (r.Running || late) && helper:
			holder, sure = c, known
		case r.Exit == nil || *r.Exit != 0:
			return nil
		default:
			ended = append(ended, s.Quote(r.Finished, "%s completed", c.Name))
		}
	}
	if holder == nil || len(ended) == 0 {
		return nil
	}
	kind, name := s.workload()
	f := Finding{
		Code: "job-never-ends", Container: holder.Name, Confidence: Certain,
		Sentence: fmt.Sprintf("the %s cannot end: its work is done, and %s runs on", kind, holder.Name),
		Evidence: append(ended, s.Quote(holder.Last().Started, "%s runs", holder.Name)),
		Disproof: fmt.Sprintf("an end of %s soon after", holder.Name),
		Remedy:   finding.Remedy{Sentence: fmt.Sprintf("make %s a native sidecar (an init container with restartPolicy: Always), which ends with the pod's work; this pod ends when %s gets SIGTERM", holder.Name, holder.Name)},
	}
	if holder == s.Proxy {
		f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("make %s a native sidecar, which ends with the pod's work; this pod ends when its proxy is told to exit", holder.Name), Command: s.quit()}
		f.Patch = s.nativePatch(name)
	}
	if least, _, ok := s.Taken.Since(ended[len(ended)-1].At); !sure || ok && least < time.Minute {
		f.Confidence = Likely
	}
	return []Finding{f}
}

// deadlinePassed reports whether the deadline of the pod, or of its Job, has passed.
func (s *subject) deadlinePassed() bool {
	const reason = "DeadlineExceeded"
	return s.Object.Status.Reason == reason || slices.ContainsFunc(s.Events, func(e evidence.Event) bool { return e.Reason == reason })
}

// serves reports whether a container serves others and does not end by itself, and whether that is sure: by its program, or as a proxy.
func (s *subject) serves(c *evidence.Container) (is, sure bool) {
	spec := s.Spec(c.Name)
	if spec == nil {
		return false, false
	}
	command := strings.Join(append(append([]string(nil), spec.Command...), spec.Args...), " ")
	for _, loop := range loops {
		if strings.Contains(command, loop) {
			return true, true
		}
	}
	if c == s.Proxy || knownproxy.OfMesh(c.Name) || knownproxy.IsProxy(spec) || podspec.IsServer(spec) {
		return true, true
	}
	for _, part := range helperNames {
		if strings.Contains(strings.ToLower(c.Name+" "+podspec.ImageName(spec.Image)), part) {
			return true, false
		}
	}
	return false, false
}

// quit returns a command that makes the proxy exit, or that deletes the pod if no request makes the proxy exit.
func (s *subject) quit() string {
	switch s.Proxy.Name {
	case "outrider-proxy":
		return s.kubectl("exec %s -c %s -- outrider-agent request POST /quitquitquit", s.Object.Name, s.Proxy.Name)
	case "istio-proxy":
		return s.kubectl("exec %s -c %s -- pilot-agent request POST /quitquitquit", s.Object.Name, s.Proxy.Name)
	}
	return s.kubectl("delete pod %s", s.Object.Name)
}
