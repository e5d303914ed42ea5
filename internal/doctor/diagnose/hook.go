package diagnose

import (
	"fmt"
	"regexp"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
	"outrider.dev/startup"
)

// notExecuted matches what the container runtime and shells say of the command of a hook that never ran.
var notExecuted = regexp.MustCompile(`(?i)OCI runtime exec failed|executable file not found|no such file or directory|command not found|permission denied|exec format error|exited with 12[67]`)

// hookFails finds containers that the kubelet ends since the command of their postStart hook fails. The hook of a proxy
// that holds the applications is left to the rules about the proxy, unless its command could not be executed.
func hookFails(s *subject) (out []result.Finding) {
	for _, c := range s.Containers {
		e, failed := s.lastEvent(c.Name, "FailedPostStartHook")
		if !failed || s.Deleted() || s.wellSince(c, e) {
			continue
		}
		missing := notExecuted.MatchString(e.Message)
		if !missing && s.holds(c) {
			continue
		}
		f := result.Finding{
			Code: "container-not-created", Container: c.Name, Confidence: result.Certain,
			Sentence: fmt.Sprintf("the kubelet ends %s, since its postStart hook fails: %s", c.Name, s.hookSays(e)),
			Evidence: append([]evidence.Quote{s.QuoteEvent(e, e.Last, "FailedPostStartHook: "+e.Message)}, s.QuoteEvents(c.Name, "BackOff")...),
			Disproof: fmt.Sprintf("a run of %s that ended although its hook had succeeded", c.Name),
			Remedy:   finding.Remedy{Sentence: fmt.Sprintf("see why the command of the hook fails, by running it in a container of the image of %s", c.Name), Command: s.kubectl("describe pod %s", s.Object.Name)},
		}
		if missing {
			f.Remedy.Sentence = fmt.Sprintf("use an image for %s that has the hook's command, or a startup probe by HTTP or TCP in place of the hook (for a sidecar: a native sidecar)", c.Name)
		}
		out = append(out, f)
	}
	return out
}

// endedByHook reports whether the kubelet ended a run since a postStart hook failed.
func (s *subject) endedByHook(container string, r evidence.Run) bool {
	_, failed := s.lastEvent(container, "FailedPostStartHook")
	return failed && r.Exit != nil && (*r.Exit == 0 || r.Signal != 0)
}

// wellSince reports whether a container became ready after an event.
func (s *subject) wellSince(c *evidence.Container, e evidence.Event) bool {
	status, last := s.Status(c.Name), c.Last()
	return status != nil && status.Ready && last != nil && last.Started.Compare(e.Last) == evidence.After
}

// holds reports whether other containers wait for a container by its postStart hook.
func (s *subject) holds(c *evidence.Container) bool {
	if c != s.Proxy {
		return false
	}
	for _, e := range s.Order.Plan().Edges {
		if e.From == c.Name && e.By == startup.Hold {
			return true
		}
	}
	return false
}

// lastEvent returns the last event with a reason about a container; false if there is none.
func (s *subject) lastEvent(container, reason string) (last evidence.Event, found bool) {
	for _, e := range s.Events {
		if e.Container == container && e.Reason == reason {
			last, found = e, true
		}
	}
	return last, found
}

// hookParts separate the command in the message of a failed hook from what it said.
var hookParts = regexp.MustCompile(`failed - error: (.*)$`)

// hookSays returns what went wrong with a hook, without the words around it.
func (s *subject) hookSays(e evidence.Event) string {
	text := strings.Join(strings.Fields(s.Show([]byte(strings.ReplaceAll(e.Message, "\n", " ")))), " ")
	if m := hookParts.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	text, _, _ = strings.Cut(text, ", message: ")
	for _, before := range []string{"unable to start container process: ", "exec failed: ", "desc = "} {
		if i := strings.LastIndex(text, before); i >= 0 {
			text = text[i+len(before):]
			break
		}
	}
	return why.Cut(strings.TrimSuffix(text, ": unknown"), 160)
}
