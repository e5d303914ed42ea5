package nopod

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
)

// Creation returns the diagnosis of a workload whose pods cannot be created.
func Creation(w *evidence.Creator, showSecrets bool) result.Report {
	show := func(text string) string { return evidence.Show([]byte(text), showSecrets) }
	message, quotes := w.Said, []evidence.Quote(nil)
	if w.Failing {
		quotes = append(quotes, evidence.Quote{Source: w.Source, At: w.Since, Text: strings.TrimSpace("condition ReplicaFailure: " + show(w.Said))})
	}
	for _, e := range w.Events {
		text := e.Reason + ": " + show(e.Message)
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		quotes = append(quotes, evidence.Quote{Source: e.Source, At: e.Last, Text: text})
		message = e.Message
	}
	quotes = slices.Concat(quotes[:min(len(quotes), 1)], quotes[max(len(quotes)-2, 1):]) // the first, and the last ones
	why, remedy := states.Refused(message, w.Namespace)
	f := result.Finding{
		Code: "pods-not-created", Confidence: result.Certain, Evidence: quotes, Remedy: remedy,
		Sentence: fmt.Sprintf("%s of %s %s can be created: %s", howMany(w), w.Kind, w.Name, show(why)),
		Disproof: fmt.Sprintf("a pod of %s %s that was created later", w.Kind, w.Name),
	}
	if !w.Failing && w.Want < 0 {
		f.Confidence = result.Likely
		f.Against = []evidence.Quote{{Source: w.Source, Text: "the object is not in the evidence: a later attempt may have succeeded"}}
	}
	if q, found := askedMore(w, message); found {
		f.Evidence = append(f.Evidence, q)
	}
	return result.Report{Version: result.Version, Pod: w.About(), Verdict: result.Found, Sentence: f.Sentence, Findings: []result.Finding{f}}
}

// howMany says which of the pods of a workload cannot be created.
func howMany(w *evidence.Creator) string {
	if w.Want > 0 && w.Have > 0 && w.Have < w.Want {
		return fmt.Sprintf("only %d of %d pods", w.Have, w.Want)
	}
	if w.Have > 0 {
		return "no further pod"
	}
	return "no pod"
}

var asked = regexp.MustCompile(`requested: ((?:[\w./-]+=[\w.]+,?)+)`)

// askedMore returns a quote if a pod asked more than the pod template does: what was added at its admission asks the rest.
func askedMore(w *evidence.Creator, message string) (evidence.Quote, bool) {
	m := asked.FindStringSubmatch(message)
	if m == nil || w.Asks == nil {
		return evidence.Quote{}, false
	}
	for pair := range strings.SplitSeq(m[1], ",") {
		name, value, _ := strings.Cut(pair, "=")
		q, err := resource.ParseQuantity(value)
		template, set := w.Asks[corev1.ResourceName(name)]
		if err != nil || !set || q.Cmp(template) <= 0 {
			continue
		}
		q.Sub(template)
		return evidence.Quote{Source: w.Source, Text: fmt.Sprintf("of %s the pod template itself asks %s=%s: the other %s was added at admission, as an injected sidecar does", pair, name, template.String(), q.String())}, true
	}
	return evidence.Quote{}, false
}
