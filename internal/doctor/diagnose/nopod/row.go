// Package nopod diagnoses what there is no object of a pod for: a line of kubectl get pods, and a workload whose pods
// cannot be created.
package nopod

import (
	"cmp"
	"fmt"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
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
	{"Pending", "not-scheduled", result.Possible, "no container of the pod runs: perhaps it has no node"},
	{"Unknown", "node-lost", result.Likely, "the pod's node does not answer"},
}

// healthyRows are the STATUS of pods that have no fault.
var healthyRows = map[string]bool{"Completed": true, "Succeeded": true, "Terminating": true}

// Row returns the diagnosis of a pod of which there is nothing but a line of kubectl get pods.
func Row(p *evidence.Pod) result.Report {
	r, line := result.Report{Version: result.Version, Pod: p.Name()}, p.Row
	in := ""
	if p.Object.Namespace != "" {
		in = " -n " + p.Object.Namespace
	}
	r.Missing = []string{"everything but the line of kubectl get pods: it does not say which container it means, nor why"}
	r.Decide = fmt.Sprintf("kubectl describe pod%s %s", in, p.Object.Name)
	status := strings.TrimPrefix(line.Status, "Init:")
	m := rowMeaning{status: status, code: states.NotKnown, confidence: result.Possible, sentence: fmt.Sprintf("%d of its %d containers are ready (%s)", line.Ready, line.Of, line.Status)}
	fromStates := false
	for _, table := range [][]states.Meaning{states.Waiting, states.Terminated, states.Pod} {
		if s, known := states.Find(table, status, ""); known && s.Code != "" && !fromStates {
			fromStates = true
			m = rowMeaning{status, s.Code, result.Likely, cmp.Or(strings.ReplaceAll(s.Sentence, "{c}", "a container"), "the image of a container cannot be pulled")}
		}
	}
	for _, known := range rowMeanings {
		if known.status == status {
			m = known
		}
	}
	switch {
	case healthyRows[status], status == "Running" && line.Ready == line.Of:
		r.Verdict, r.Sentence, r.Decide = result.Nothing, "nothing is wrong as far as a line of kubectl get pods shows", ""
		return r
	case m.code == states.NotKnown && line.Age > 0 && line.Age < facts.Young:
		r.Verdict, r.Sentence = result.Starting, "the pod is starting: "+m.sentence
		return r
	}
	sentence := m.sentence
	if line.Restarts > 0 {
		sentence += fmt.Sprintf(", after %d restarts", line.Restarts)
	}
	f := result.Finding{
		Code: m.code, Confidence: m.confidence, Sentence: sentence,
		Evidence: []evidence.Quote{{Source: p.Source, Text: fmt.Sprintf("READY %d/%d, STATUS %s, RESTARTS %d", line.Ready, line.Of, line.Status, line.Restarts)}},
		Disproof: "the description of the pod",
		Remedy:   finding.Remedy{Sentence: "see what the pod's description and the logs of its containers say", Command: r.Decide},
	}
	r.Verdict, r.Findings = result.Found, []result.Finding{f}
	r.Sentence = sentence
	if m.confidence == result.Possible {
		r.Verdict, r.Sentence = result.Undecided, sentence+"; why is not in the evidence: give the description of the pod and its logs"
	}
	return r
}
