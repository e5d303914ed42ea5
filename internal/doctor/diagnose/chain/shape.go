package chain

// This file finds causes by the structure of a pod and the order in which its containers started and ended. It needs no log;
// where none says it, a finding is possible at most, or likely.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// A Found is a finding, and for which order of a helper and its container a remedy is wanted.
type Found struct {
	result.Finding
	Purpose remedies.Purpose
	Serves  string // the helper; empty: the finding has its remedy
	Port    uint16 // of the failed call; 0: not known
}

// InitWithoutNetwork finds init containers whose calls are captured before the proxy can run: it starts after all of them
// or, as a native sidecar, after this one.
func InitWithoutNetwork(s *Case) (out []Found) {
	if s.Proxy == nil || s.Capture.None != "" {
		return nil
	}
	for _, c := range s.Inits {
		if !s.CaptureFirst(c.Name) || !startsBefore(s, c.Name) {
			continue
		}
		f := Found{Finding: result.Finding{Code: "init-needs-network", Container: c.Name, Confidence: result.Certain}, Purpose: remedies.Init, Serves: s.Proxy.Name}
		after := "starts only when all init containers have ended"
		because := s.Quote(evidence.Time{}, "%s is a plain container, and the capture is written before %s", s.Proxy.Name, c.Name)
		if s.Proxy.Kind == startup.Sidecar {
			after = "starts only after it"
			because = s.Quote(evidence.Time{}, "%s comes after %s in the list of init containers, and the capture is there from the start of the pod", s.Proxy.Name, c.Name)
		}
		if y, takes, why, is := captured(s, c.Name); is {
			f.Sentence = fmt.Sprintf("init container %s has no network: its calls go to %s, which %s", c.Name, s.Proxy.Name, after)
			f.Evidence, f.Port = []evidence.Quote{y.Quote, because}, y.To.Port
			f.Disproof = fmt.Sprintf("that %s is left out of the capture", y.To)
			if y.Named != nil {
				f.Confidence, f.Evidence = result.Likely, append(f.Evidence, *y.Named)
			}
			if takes == doctor.Perhaps {
				f.Confidence, f.Against = result.Likely, []evidence.Quote{s.Quote(evidence.Time{}, "%s", why)}
			}
			out = append(out, f)
			continue
		}
		if q, stuck := doesNotComplete(s, c); stuck {
			f.Confidence = result.Possible
			f.Sentence = fmt.Sprintf("init container %s does not complete, and any call that it makes goes to %s, which %s", c.Name, s.Proxy.Name, after)
			f.Evidence = []evidence.Quote{q, because}
			f.Disproof = "a call of its log that was answered, or that it makes none"
			f.Against = []evidence.Quote{s.Quote(evidence.Time{}, "no log of %s is in the evidence: it may fail for another reason", c.Name)}
			out = append(out, f)
		}
	}
	return out
}

// startsBefore reports whether an init container ends before the proxy can start.
func startsBefore(s *Case, name string) bool {
	at := func(container string) int {
		return slices.IndexFunc(s.Object.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == container })
	}
	return s.Proxy.Kind != startup.Sidecar || at(name) < at(s.Proxy.Name)
}

// captured returns the first failed call of a container that the capture takes, or may take.
func captured(s *Case, name string) (y calls.Call, takes doctor.Answer, why string, is bool) {
	for _, y := range s.Calls.By(name, calls.Refused, calls.TimedOut, calls.Reset) {
		if takes, why := s.Capture.Takes(name, y.To); takes != doctor.No {
			return y, takes, why, true
		}
	}
	return y, takes, why, false
}

// doesNotComplete quotes what shows that an init container fails again and again, or runs for long, without a log that could
// say why. One that is exempt from the capture by its user can call.
func doesNotComplete(s *Case, c *evidence.Container) (evidence.Quote, bool) {
	last := c.Last()
	if last == nil || len(c.Logs) > 0 || s.Capture.Presumed {
		return evidence.Quote{}, false
	}
	if takes, _ := s.Capture.Takes(c.Name, somewhere); takes == doctor.No {
		return evidence.Quote{}, false
	}
	age, known := s.Age()
	switch failed := lastEnd(c); {
	case failed != nil && failed.Exit != nil && *failed.Exit != 0 && failed.Reason != "OOMKilled" && c.Restarts > 0:
		return s.Quote(failed.Finished, "%s, run %d: %s", c.Name, failed.Number, facts.ExitText(*failed)), true
	case last.Running && known && age > facts.Young:
		return s.Quote(last.Started, "%s started, and runs since", c.Name), true
	}
	return evidence.Quote{}, false
}

// somewhere is the destination of a call of which nothing is known.
var somewhere = doctor.Destination{Host: "somewhere.invalid", Port: 65000}

// lastEnd returns the last run of a container that has ended, or nil.
func lastEnd(c *evidence.Container) *evidence.Run {
	for i := range slices.Backward(c.Runs) {
		if !c.Runs[i].Running {
			return &c.Runs[i]
		}
	}
	return nil
}

// EndedBeforeReady finds applications without a log that failed before their proxy was ready, and not afterwards.
func EndedBeforeReady(s *Case) (out []Found) {
	if s.Proxy == nil || s.Capture.None != "" || s.Capture.Parks || s.Deleted() || s.Unborn != nil {
		return nil
	}
	for _, app := range s.Apps {
		var before []evidence.Quote
		late := false
		for _, r := range app.Runs {
			switch listening := s.Listened(r.Finished); {
			case r.Exit == nil || *r.Exit == 0 || r.Running:
			case !byItself(r) || app.Log(r.Number) != nil || r.Reason != "Error" && r.Reason != "" || len(s.Calls.Of(app.Name, r.Number)) > 0:
				late = true
			case listening.Answer == doctor.No || listening.Answer == doctor.Perhaps && endsAtOnce(s, r):
				before = append(append(before, s.Quote(r.Finished, "%s, run %d: %s", app.Name, r.Number, facts.ExitText(r))), listening.Because...)
			default:
				late = true
			}
		}
		if late || len(before) == 0 {
			continue
		}
		f := Found{Purpose: remedies.Start, Serves: s.Proxy.Name, Finding: result.Finding{
			Code: "startup-race", Container: app.Name, Confidence: result.Possible,
			Sentence: fmt.Sprintf("startup race: %s ended before its proxy was ready, as it does if its calls are refused", app.Name),
			Evidence: before, Disproof: fmt.Sprintf("another reason in the log of %s", app.Name),
			Against: []evidence.Quote{s.Quote(evidence.Time{}, "no log of it is in the evidence: that it made a call is not known")},
		}}
		if s.ShouldEnd() {
			f.Purpose = remedies.JobStart
		}
		for _, v := range s.Serving[:min(len(s.Serving), 1)] {
			if v.Started.Known() {
				f.Evidence = append(f.Evidence, s.Quote(v.Started, "%s started", s.Proxy.Name))
			}
			if v.Ready.At.Known() && !slices.Contains(f.Evidence, v.Ready) {
				f.Evidence = append(f.Evidence, v.Ready)
			}
		}
		if last := app.Last(); last.Running || last.Exit != nil && *last.Exit == 0 {
			f.Sentence += "; it works since"
			f.Evidence = append(f.Evidence, s.Quote(last.Started, "%s started again (%d)", app.Name, last.Number))
		}
		out = append(out, f)
	}
	return out
}

// byItself reports whether a run ended by its own program: not by a signal, but for an abort, nor since it could not be
// executed.
func byItself(r evidence.Run) bool {
	const abort, notExecuted, notFound = 6, 126, 127
	return (r.Signal == 0 || r.Signal == abort) && *r.Exit != notExecuted && *r.Exit != notFound
}

// endsAtOnce reports whether a run ended within the first second of its proxy's first run, in which none listens.
func endsAtOnce(s *Case, r evidence.Run) bool {
	if len(s.Serving) == 0 {
		return false
	}
	least, _, ok := r.Finished.Since(s.Serving[0].Started)
	return ok && least <= 0
}

// KilledAtStop finds applications of a pod in deletion that were killed when their grace period was over.
func KilledAtStop(s *Case) (out []Found) {
	stop, stops := s.Stopped()
	grace := s.Grace()
	if !s.Deleted() || !stops || !stop.At.Known() || grace < 2*time.Second {
		return nil
	}
	for _, app := range s.Apps {
		r := app.Last()
		if r == nil || r.Signal != 9 || r.Reason == "OOMKilled" || s.HasEvent(app.Name, "Killing", "probe") {
			continue
		}
		const late = 5 * time.Second
		least, most, ok := r.Finished.Since(OnClock(stop.At))
		if !ok || most < grace || least > grace+late {
			continue
		}
		f := Found{Finding: result.Finding{
			Code: "grace-too-short", Container: app.Name, Confidence: result.Likely,
			Sentence: fmt.Sprintf("%s did not end within its grace period of %s, and was killed then (%s)", app.Name, facts.Duration(grace), facts.ExitText(*r)),
			Evidence: []evidence.Quote{stop, s.Quote(r.Finished, "%s ended: %s, and not OOMKilled", app.Name, facts.ExitText(*r))},
			Disproof: "a message of the kernel, or of the container runtime, that something else killed it",
			Remedy:   finding.Remedy{Sentence: fmt.Sprintf("see whether %s ends at SIGTERM; if it does, and only needs longer, raise terminationGracePeriodSeconds. More memory does not help", app.Name)},
		}}
		spec := s.Spec(app.Name)
		if script, is := passesNoSignal(spec); is {
			f.Code = "shell-without-exec"
			f.Sentence += fmt.Sprintf(": its first process is %s, which neither ends at SIGTERM nor passes it on to the program", script)
			f.Evidence = append(f.Evidence, s.Quote(evidence.Time{}, "the command of %s: %s", app.Name, Short(s.Show([]byte(strings.Join(podspec.CommandLine(spec), " "))))))
			f.Remedy.Sentence = fmt.Sprintf("begin the last command of the script of %s with exec, or trap SIGTERM there and pass it on; a longer grace period and more memory do not help", app.Name)
		} else if spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil {
			f.Sentence += "; its preStop hook counts in that time"
			f.Remedy.Sentence = fmt.Sprintf("raise terminationGracePeriodSeconds above what the preStop hook and the stop of %s take together, or shorten the hook. More memory does not help", app.Name)
		}
		out = append(out, f)
	}
	return out
}

// passesNoSignal returns the shell that stays the first process of a container with a program below it, and false if there
// is none, or its script handles signals.
func passesNoSignal(c *corev1.Container) (string, bool) {
	if c == nil {
		return "", false
	}
	argv := podspec.BehindGate(c)
	script, is := shell.ScriptOf(argv)
	all := shell.Calls(argv)
	if !is || len(all) == 0 || shell.AfterInit(argv) > 0 {
		return "", false
	}
	handles := slices.ContainsFunc(all, func(c shell.Call) bool { return c.Program == "trap" || c.Execed })
	alone := len(all) == 1 && all[0].Final && all[0].Alone // most shells execute it in their own place
	return script.Shell, !handles && !alone
}

// Overcome reports whether a later event proves that a step of the start succeeded after the last event that says it failed.
// Events have whole seconds: within one, the order of the steps decides.
func Overcome(s *facts.Pod, reason string) bool {
	last, failed := s.LastEvent("", reason)
	return failed && slices.ContainsFunc(s.Events, func(e evidence.Event) bool {
		return states.Overcomes(e.Reason, reason) && last.Last.Compare(e.Last) != evidence.After
	})
}

// Waited says what a pod waited for at its start that is over; empty: nothing.
func Waited(s *facts.Pod) string {
	for _, k := range states.NotStarted {
		first := slices.IndexFunc(s.Events, func(e evidence.Event) bool { return e.Container == "" && e.Reason == k.Reason })
		if first < 0 || !Overcome(s, k.Reason) {
			continue
		}
		said := states.StartSays(s.Show([]byte(s.Events[first].Message)))
		return fmt.Sprintf("nothing is wrong now; at its start %s%s: %s", k.What, untilStart(s), Short(said))
	}
	return ""
}

// untilStart says how long after the pod's start its first container began to run; empty: it is not known.
func untilStart(s *facts.Pod) string {
	begin := s.Object.Status.StartTime
	var first time.Time
	for _, c := range s.Containers {
		if r := c.Run(0); r != nil && r.Started.Known() && (first.IsZero() || r.Started.At.Before(first)) {
			first = r.Started.At
		}
	}
	if begin == nil || first.IsZero() || first.Before(begin.Time) {
		return ""
	}
	return fmt.Sprintf(" (its first container started after %s)", facts.Duration(first.Sub(begin.Time)))
}

// EndsForGood reports whether the containers of a pod that ended are not started again, by its policy or, where that is not in
// the evidence, since one that ended without a restart has not been for longer than the kubelet waits.
func EndsForGood(s *Case) bool {
	const again = 20 * time.Second
	return s.ShouldEnd() || s.Object.Spec.RestartPolicy == "" && slices.ContainsFunc(s.Containers, func(c *evidence.Container) bool {
		r := c.Last()
		return c.Kind == startup.Plain && c.Waiting == nil && c.Restarts == 0 && r != nil && r.Finished.Known() && s.Now().Sub(r.Finished.At) >= again
	})
}

// KeepsOpen returns the helper that runs on in a pod whose other containers have ended for good, one of them with a failure;
// nil: there is none. serves says which containers serve others.
func KeepsOpen(s *Case, serves func(*evidence.Container) (is, sure bool)) (helper *evidence.Container) {
	if s.Object.Spec.RestartPolicy == corev1.RestartPolicyOnFailure || !EndsForGood(s) || s.Deleted() {
		return nil
	}
	failed := false
	for _, c := range s.Containers {
		r := c.Last()
		if c.Kind != startup.Plain {
			continue
		}
		switch is, _ := serves(c); {
		case r == nil || c.Waiting != nil || r.Running && !is:
			return nil
		case r.Running:
			helper = c
		default:
			failed = failed || r.Exit != nil && *r.Exit != 0
		}
	}
	if !failed {
		return nil
	}
	return helper
}

// KeptOpen adds to a report that a helper keeps the pod from its end, which is a second fault.
func KeptOpen(s *Case, r *result.Report, helper *evidence.Container) {
	if helper == nil || len(r.Findings) == 0 || slices.ContainsFunc(r.Findings, func(f result.Finding) bool { return f.Code == "job-never-ends" }) {
		return
	}
	text := fmt.Sprintf("; besides, %s runs on, so that the pod does not end", helper.Name)
	if remedies.OwnerOf(s.Object, s.Owners).Kind == "CronJob" {
		text += " (with concurrencyPolicy: Forbid its CronJob starts no other Job meanwhile)"
	}
	f := &r.Findings[0]
	if r.Sentence == f.Sentence {
		f.Sentence += text
	}
	r.Sentence += text
	if q := s.Quote(helper.Last().Started, "%s started", helper.Name); !slices.Contains(f.Evidence, q) {
		f.Evidence = append(f.Evidence, q)
	}
}

// GotOver changes the remedies of races that a container got over, beside another cause: what would spare the race does not
// help against that.
func GotOver(all []result.Finding) {
	for i := range all {
		f := &all[i]
		if i == 0 || !f.Over || f.Code != "startup-race" || f.Remedy.Sentence == "" {
			continue
		}
		f.Patch, f.Change, f.Replay = "", "", nil
		f.Remedy = finding.Remedy{Sentence: "it is over, and not the cause; to spare it at the next start, " + f.Remedy.Sentence}
	}
}
