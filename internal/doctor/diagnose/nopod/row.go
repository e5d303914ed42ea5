// Package nopod diagnoses what there is no object of a pod for: a line of kubectl get pods, and a workload whose pods
// cannot be created.
package nopod

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
)

// A rowMeaning is a row of the table of the STATUS that kubectl get pods prints. It stands for one container or for the
// pod: which one, the line does not say.
type rowMeaning struct {
	status     string
	code       finding.Code
	confidence result.Confidence
	sentence   string
}

// rowMeanings has those that are not in package states, or that mean less in a line.
var rowMeanings = []rowMeaning{
	{"CrashLoopBackOff", "app-crash", result.Possible, "a container ends again and again"},
	{"Error", "app-crash", result.Possible, "a container ended with a failure"},
	{"RunContainerError", "container-not-created", result.Likely, "a container cannot be started"},
	{"OOMKilled", "out-of-memory", result.Likely, "a container ran out of memory"},
	// kubectl says so of a pod with a container that has completed and one that runs, if it is not ready. Source:
	// k8s.io/kubernetes/pkg/printers/internalversion, printPod.
	{"NotReady", "job-never-ends", result.Likely, "a container has done its work, and another one runs on, so that the pod does not end"},
	{"Pending", "not-scheduled", result.Possible, "no container of the pod runs: perhaps it has no node"},
	{"Unknown", "node-lost", result.Likely, "the pod's node does not answer"},
	{"Terminating", states.NotKnown, result.Possible, "the pod is being deleted (Terminating), and the line does not say how its containers end"},
}

// healthyRows are the STATUS of pods that have no fault.
var healthyRows = map[string]bool{"Completed": true, "Succeeded": true}

// Row returns the diagnosis of a pod of which there is nothing but a line of kubectl get pods.
func Row(p *evidence.Pod) result.Report {
	r, line := result.Report{Version: result.Version, Pod: p.Name()}, p.Row
	r.Missing = []string{"everything but the line of kubectl get pods: it does not say which container it means, nor why"}
	unread := unreadLogs(p)
	for _, log := range unread {
		r.Missing = append(r.Missing, log+": it is not used")
	}
	r.Decide = describe(p)
	status := strings.TrimPrefix(line.Status, "Init:")
	m := rowMeaning{status: status, code: states.NotKnown, confidence: result.Possible, sentence: looks(line)}
	fromStates := false
	for _, table := range [][]states.Meaning{states.Waiting, states.Terminated, states.Pod} {
		if s, known := states.Find(table, status, ""); known && s.Code != "" && !fromStates {
			fromStates = true
			m = rowMeaning{status, s.Code, result.Likely, cmp.Or(strings.ReplaceAll(s.Sentence, "{c}", "a container"), "the image of a container cannot be pulled")}
		}
	}
	inTable := false
	for _, known := range rowMeanings {
		if known.status == status {
			m, inTable = known, true
		}
	}
	switch well := healthyRows[status] || line.Runs(); {
	case well && len(unread) == 0:
		if status == "Running" && restartedLately(line) {
			m.sentence = looks(line)
			break
		}
		r.Verdict, r.Sentence, r.Decide = result.Nothing, "nothing is wrong as far as a line of kubectl get pods shows", ""
		return r
	case well:
		m.sentence = fmt.Sprintf("the line looks well (%s), and a log beside it was not read (%s)", line.Status, strings.Join(unread[:min(len(unread), 3)], ", "))
	case m.code == states.NotKnown && !inTable && line.Age > 0 && line.Age < facts.Young && len(unread) == 0:
		r.Verdict, r.Sentence = result.Starting, "the pod is starting: "+m.sentence
		return r
	}
	return suspect(p, r, m)
}

// lately is the time since a restart up to which a pod that runs again is not called well.
const lately = 24 * time.Hour

// looks returns how a pod looks by its line.
func looks(line *evidence.Row) string {
	if line.Ready < line.Of && !healthyRows[line.Status] {
		return fmt.Sprintf("%d of its %d containers are ready (%s)", line.Ready, line.Of, line.Status)
	}
	return fmt.Sprintf("the line looks well (%s)", line.Status)
}

// restartedLately reports whether a container of the pod restarted, as far as the line shows not long ago: something ended
// it.
func restartedLately(line *evidence.Row) bool { return line.Restarts > 0 && line.Ended < lately }

// describe returns the command that shows more of a pod than its line.
func describe(p *evidence.Pod) string {
	if p.Object.Namespace != "" {
		return fmt.Sprintf("kubectl describe pod -n %s %s", p.Object.Namespace, p.Object.Name)
	}
	return "kubectl describe pod " + p.Object.Name
}

// unreadLogs returns the files beside the line that look like logs of the pod and were not read.
func unreadLogs(p *evidence.Pod) (out []string) {
	for _, m := range p.Missing {
		if m.Kind == evidence.FromLog {
			out = append(out, m.What)
		}
	}
	return out
}

// suspect completes a report with the finding about a line.
func suspect(p *evidence.Pod, r result.Report, m rowMeaning) result.Report {
	line, sentence := p.Row, m.sentence
	if line.Restarts > 0 {
		sentence += fmt.Sprintf(", after %d restarts", line.Restarts)
	}
	f := result.Finding{
		Code: m.code, Confidence: m.confidence, Sentence: sentence,
		Evidence: []evidence.Quote{{Source: line.Source, Text: fmt.Sprintf("READY %d/%d, STATUS %s, RESTARTS %d", line.Ready, line.Of, line.Status, line.Restarts)}},
		Disproof: "the description of the pod",
		Remedy:   finding.Remedy{Command: describe(p)},
	}
	r.Verdict, r.Findings = result.Found, []result.Finding{f}
	r.Sentence = sentence
	if m.confidence == result.Possible {
		r.Verdict, r.Sentence = result.Undecided, sentence+"; why is not in the evidence: give the description of the pod and its logs"
	}
	return r
}

// Unsure lowers the confidence of findings about a pod whose states are a person's words, or of which only logs are known.
// Of the latter nothing says which units, as a proxy, it has besides, so that a call that was refused may have met one.
func Unsure(findings []result.Finding, units bool) {
	for i := range findings {
		f := &findings[i]
		if f.Code == "dependency-down" && units {
			f.Confidence, f.Sentence = result.Possible, strings.TrimSuffix(f.Sentence, " itself")+", and whether the pod has a proxy is not in the evidence"
		}
		if f.Confidence.Degree() > result.Likely.Degree() {
			f.Confidence = result.Likely
		}
	}
}

// ofOneLog has the codes of what one log shows by itself, whatever other containers the pod has.
var ofOneLog = []finding.Code{"shutdown-race", "configuration-rejected", "no-certificate", "no-control-plane", "name-not-resolved"}

// OfLogs completes the diagnosis of a pod of which only logs are known, and nothing of its state, by what a log says of the
// end of its program. That it ended for good, nothing shows.
func OfLogs(r *result.Report, told []evidence.Told, failed []evidence.Quote) {
	if r.Verdict != result.Undecided || len(r.Findings) != 1 || r.Findings[0].Code != states.NotKnown {
		return
	}
	f := &r.Findings[0]
	if len(told) == 1 && endsBy(told[0]) {
		f.Code, f.Container, f.Sentence = "app-crash", told[0].Container, fmt.Sprintf("%s ended by itself, as its log says: %s", told[0].Container, told[0].Text)
		f.Evidence, f.Disproof, f.Remedy = nil, "a status of the container that says otherwise", finding.Remedy{Sentence: why.Remedy(told[0].Text)}
		if r.Sentence = "undecided: " + f.Sentence; len(failed) == 0 { // else a call that failed may be the reason
			r.Verdict, r.Sentence, r.Decide, f.Confidence = result.Found, f.Sentence, "", result.Likely
		}
	}
	for _, t := range told {
		f.Evidence = append(f.Evidence, t.Quotes...)
	}
	f.Evidence = append(f.Evidence, failed[:min(len(failed), 3)]...)
}

// isProxy reports whether a container is the proxy of a mesh, which logs failures and goes on.
func isProxy(container string) bool {
	_, is := knownproxy.Named(container)
	return is
}

// endsBy reports whether a log says that its program ends: by a fatal level, or as an exception that was not caught.
func endsBy(t evidence.Told) bool {
	if len(t.Quotes) == 0 {
		return false
	}
	text := t.Quotes[0].Text
	return why.LevelOf(text) == why.Fatal || slices.ContainsFunc(why.Texts, func(s string) bool { return strings.Contains(strings.ToLower(text), s) })
}

// endedHelper puts the end of a container before the call of another one that did not find it there, if its log says that it
// ends: that is the cause. It reports whether there is such a container.
func endedHelper(r *result.Report, told []evidence.Told) bool {
	call := r.Findings[0]
	i := slices.IndexFunc(told, func(t evidence.Told) bool { return t.Container != call.Container && endsBy(t) })
	if call.Code != "sibling-down" || i < 0 {
		return false
	}
	f := result.Finding{
		Code: "app-crash", Container: told[i].Container, Confidence: result.Likely, Evidence: told[i].Quotes,
		Sentence: fmt.Sprintf("%s ended by itself: %s", told[i].Container, told[i].Text),
		Disproof: "a later line of its log that says that it serves", Remedy: finding.Remedy{Sentence: why.Remedy(told[i].Text)},
	}
	r.Findings = append([]result.Finding{f}, r.Findings...)
	r.Sentence = fmt.Sprintf("%s; %s then calls it in vain", f.Sentence, call.Container)
	return true
}

// eitherWay leaves open why a call failed in a pod that was restarted and works since, if the line counts a container that
// is not known: its destination was not there at that time, or the container is a proxy that was not ready yet. It reports
// whether there is such a call.
func eitherWay(r *result.Report) bool {
	if len(r.Findings) == 0 || r.Findings[0].Code != "dependency-down" {
		return false
	}
	f := &r.Findings[0]
	called := strings.TrimSuffix(strings.TrimSuffix(f.Sentence, ": it was not available"), " itself")
	if called == f.Sentence && !strings.Contains(called, " was refused ") {
		return false
	}
	f.Confidence = result.Possible
	f.Sentence = called + ", and the pod works since its restart: either that was not available, or a proxy in the pod's other container was not ready yet"
	r.Verdict, r.Sentence = result.Undecided, f.Sentence+"; which, the evidence does not say"
	return true
}

// WithLogs completes the diagnosis of a pod of which only the line and logs are known. What the logs say decides, but it
// is not certain: the line does not say which containers the pod has, nor which of its runs a log is of. If the logs say
// nothing, the line does; and it is not well if a log says an error. A cause that needs to know what the pod does not have
// is left open where the line counts more containers than have a log.
func WithLogs(p *evidence.Pod, r *result.Report, told []evidence.Told, failed []evidence.Quote) {
	row := Row(p)
	r.Missing = append(row.Missing[:1:1], r.Missing...)
	all := len(p.Containers) >= p.Row.Of // else another container may be the one that was called, or a proxy
	lineWell := row.Verdict.Well() || p.Row.Runs()
	ordered := r.Verdict == result.Undecided && slices.ContainsFunc(r.Findings, func(f result.Finding) bool { return f.Code == "startup-race" })
	if r.Verdict == result.Found && all && endedHelper(r, told) {
		return
	}
	if r.Verdict == result.Found && (all || slices.Contains(ofOneLog, r.Findings[0].Code)) {
		for i := range r.Findings {
			if f := &r.Findings[i]; f.Confidence == result.Certain {
				f.Confidence = result.Likely
			}
		}
		return
	}
	if lineWell && !all && restartedLately(p.Row) && eitherWay(r) {
		return
	}
	if down := r.Verdict == result.Undecided && len(r.Findings) > 0 && r.Findings[0].Code == "dependency-down"; all && (ordered || down && !lineWell) {
		return // causes that are possible say more than the line
	}
	r.Verdict, r.Sentence, r.Findings, r.Decide = row.Verdict, row.Sentence, row.Findings, row.Decide
	ends := len(row.Findings) > 0 && row.Findings[0].Code == "app-crash" && len(failed) == 0 // a failed call may be the reason, or not
	for _, t := range told {
		failed = append(failed, t.Quotes...)
	}
	switch {
	case ends && len(told) == 1 && (endsBy(told[0]) || !isProxy(told[0].Container)): // the line says that a container ends, and a log why
		f := &r.Findings[0]
		f.Container, f.Confidence, f.Sentence = told[0].Container, result.Likely, fmt.Sprintf("%s ended by itself: %s", told[0].Container, told[0].Text)
		f.Evidence, f.Disproof = append(f.Evidence, told[0].Quotes...), "a failed call, or a signal from outside, just before its end"
		f.Remedy = finding.Remedy{Sentence: why.Remedy(told[0].Text)}
		r.Verdict, r.Sentence, r.Decide = result.Found, f.Sentence, ""
	case len(failed) > 0 && lineWell:
		said := suspect(p, row, rowMeaning{code: states.NotKnown, confidence: result.Possible, sentence: fmt.Sprintf("%s, and a log says: %s", looks(p.Row), failed[0].Text)})
		r.Verdict, r.Sentence, r.Findings, r.Decide = said.Verdict, said.Sentence, said.Findings, said.Findings[0].Remedy.Command
		r.Findings[0].Evidence = append(r.Findings[0].Evidence, failed[:min(len(failed), 3)]...)
	case len(failed) > 0 && len(r.Findings) > 0:
		r.Findings[0].Evidence = append(r.Findings[0].Evidence, failed[:min(len(failed), 3)]...)
	}
}
