package diagnose

import (
	"fmt"
	"regexp"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// notExecuted matches what the container runtime and shells say of the command of a hook that never ran.
var notExecuted = regexp.MustCompile(`(?i)OCI runtime exec failed|executable file not found|no such file or directory|command not found|permission denied|exec format error|exited with 12[67]`)

// hookFails finds containers that the kubelet ends since the command of their postStart hook fails. The hook of a proxy
// that holds the applications is left to the rules about the proxy, unless its command could not be executed.
func hookFails(s *subject) (out []result.Finding) {
	for _, c := range s.Containers {
		e, failed := s.LastEvent(c.Name, "FailedPostStartHook")
		if !failed || s.Deleted() || s.WellSince(c, e) {
			continue
		}
		missing := notExecuted.MatchString(e.Message)
		if !missing && s.Holds(c) {
			continue
		}
		f := result.Finding{
			Code: "container-not-created", Container: c.Name, Confidence: result.Certain,
			Sentence: fmt.Sprintf("the kubelet ends %s, since its postStart hook fails: %s", c.Name, s.HookSays(e.Message)),
			Evidence: append([]evidence.Quote{s.QuoteEvent(e, e.Last, "FailedPostStartHook: "+e.Message)}, s.QuoteEvents(c.Name, "BackOff")...),
			Disproof: fmt.Sprintf("a run of %s that ended although its hook had succeeded", c.Name),
			Remedy:   finding.Remedy{Sentence: fmt.Sprintf("see why the command of the hook fails, by running it in a container of the image of %s", c.Name), Command: s.Kubectl("describe pod %s", s.Object.Name)},
		}
		if missing {
			f.Remedy.Sentence = fmt.Sprintf("use an image for %s that has the hook's command, or a startup probe by HTTP or TCP in place of the hook (for a sidecar: a native sidecar)", c.Name)
		}
		out = append(out, f)
	}
	return out
}
