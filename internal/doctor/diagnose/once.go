package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// jobDoesNotEnd finds pods that should end (restartPolicy Never or OnFailure), but one of whose helpers still runs
// after all other containers have completed, or had to be ended by the pod's deadline.
func jobDoesNotEnd(s *subject) []result.Finding {
	if !chain.EndsForGood(s.Case) || s.Deleted() && !s.DeadlinePassed() {
		return nil
	}
	var holder *evidence.Container
	sure, worker := false, ""
	var ended []evidence.Quote
	var failed []*evidence.Run
	for _, c := range s.Containers {
		r := c.Last()
		if c.Kind != startup.Plain {
			continue
		}
		if r == nil {
			return nil
		}
		late := s.endedAtDeadline(r)
		helper, known := s.serves(c)
		switch {
		case (r.Running || late) && helper:
			holder, sure = c, known
		case r.Exit == nil || *r.Exit != 0:
			failed = append(failed, r)
		default:
			ended, worker = append(ended, s.Quote(r.Finished, "%s completed", c.Name)), cmp.Or(worker, c.Name)
		}
	}
	beforeTheWork := func(r *evidence.Run) bool { return r.Finished.Compare(ended[0].At) != evidence.After }
	if holder == nil || len(ended) == 0 || slices.ContainsFunc(failed, beforeTheWork) { // what fails after the work is another helper
		return nil
	}
	f := result.Finding{
		Code: "job-never-ends", Container: holder.Name, Confidence: result.Certain,
		Sentence: fmt.Sprintf("the %s cannot end: its work is done, and %s runs on", s.ownerKind(), holder.Name),
		Evidence: append(ended, s.Quote(holder.Last().Started, "%s started", holder.Name)),
		Disproof: fmt.Sprintf("an end of %s soon after", holder.Name),
	}
	s.remedy(&f, remedies.End, holder.Name, worker, 0)
	if last := holder.Last(); last.Running {
		s.endNow(&f, holder)
	} else {
		f.Sentence = fmt.Sprintf("the %s could not end before its deadline (DeadlineExceeded): its work was done, and %s ran on until it was ended", s.ownerKind(), holder.Name)
		f.Evidence = append(f.Evidence, s.Quote(last.Finished, "%s ended: %s; %s", holder.Name, facts.ExitText(*last), joined("DeadlineExceeded", s.Show([]byte(s.Object.Status.Message)))))
		f.Disproof = fmt.Sprintf("an end of %s before the deadline", holder.Name)
	}
	s.beside.Forbids(&f, s.Object, s.Owners)
	if least, _, ok := s.Taken.Since(ended[len(ended)-1].At); !sure || ok && least < time.Minute {
		f.Confidence = result.Likely
	}
	return []result.Finding{f}
}

// endedAtDeadline reports whether a run ended since the deadline of the pod, or of its Job, had passed: by a signal, or
// not before that time.
func (s *subject) endedAtDeadline(r *evidence.Run) bool {
	start, limit := s.Object.Status.StartTime, s.Object.Spec.ActiveDeadlineSeconds
	if !s.DeadlinePassed() || r.Signal != 0 || start == nil || limit == nil {
		return r.Signal != 0 && s.DeadlinePassed()
	}
	return r.Finished.Known() && r.Finished.At.Unix() >= start.Unix()+*limit
}

// serves reports whether a container serves others and does not end by itself, and whether that is sure: by its
// program, or as a proxy.
func (s *subject) serves(c *evidence.Container) (is, sure bool) {
	spec := s.Spec(c.Name)
	if spec == nil {
		return false, false
	}
	if c == s.Proxy {
		return true, true
	}
	return podspec.Serves(spec)
}

// endNow adds to a finding how the pod that does not end is ended. A Job makes a new pod for one that is deleted, and
// does its work again.
func (s *subject) endNow(f *result.Finding, holder *evidence.Container) {
	quit, now := map[string]string{podspec.OurProxy: "outrider-agent", "istio-proxy": "pilot-agent"}, ""
	switch agent, has := quit[holder.Name]; {
	case has:
		f.Remedy.Sentence += "; this pod ends when its proxy is told to exit"
		now = s.Kubectl("exec %s -c %s -- %s request POST /quitquitquit", s.Object.Name, holder.Name, agent)
	case s.ownerKind() == "job":
		f.Remedy.Sentence += "; this pod has done its work: if no other pod of the Job works, delete the Job (it makes a new pod for one that is deleted)"
		now = s.Kubectl("delete job %s", s.Owners[0].Name)
	case s.ownerKind() == "pod":
		f.Remedy.Sentence += "; this pod has done its work, and can be deleted"
		now = s.Kubectl("delete pod %s", s.Object.Name)
	default:
		f.Remedy.Sentence += fmt.Sprintf("; this pod ends when %s gets SIGTERM", holder.Name)
	}
	f.Remedy.Command = strings.Join(slices.DeleteFunc([]string{f.Remedy.Command, now}, func(c string) bool { return c == "" }), " && ")
}
