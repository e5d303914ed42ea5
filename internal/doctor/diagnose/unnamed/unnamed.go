// Package unnamed says in a diagnosis what logs say that name no container, and keeps what follows from a log that is only
// taken as its container's from being certain.
package unnamed

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
)

// NoLog is the end of the sentence about a container of whose last run there is no log.
const NoLog = ", and its log is not among the evidence"

// mostSaid is the number of logs that are quoted.
const mostSaid = 3

// Bound makes findings likely that quote a log of which nothing names the container.
func Bound(p *evidence.Pod, findings []result.Finding) {
	for i := range findings {
		if f := &findings[i]; f.Confidence == result.Certain && slices.ContainsFunc(f.Evidence, func(q evidence.Quote) bool { return taken(p, q.Source) }) {
			f.Confidence = result.Likely
		}
	}
}

// taken reports whether a line is of a log that is only taken as its container's.
func taken(p *evidence.Pod, at evidence.Source) bool {
	for _, c := range p.Containers {
		for _, l := range c.Logs {
			if l.Taken != "" && l.Source.File == at.File && (l.First == 0 || at.Line >= l.First) {
				return true
			}
		}
	}
	return false
}

// A said has the words of a log, by the line that tells most.
type said struct {
	text   string
	quotes []evidence.Quote
}

// Complete returns a report that leaves the cause open with the words of the logs beside the pod whose container is not known.
func Complete(ctx context.Context, p *evidence.Pod, r result.Report, secrets bool) result.Report {
	if r.Verdict != result.Undecided && !r.Verdict.Well() || !slices.ContainsFunc(p.Beside, func(b evidence.Beside) bool { return b.Unnamed }) {
		return r
	}
	all := read(ctx, p, secrets)
	if len(all) == 0 {
		return r
	}
	says := fmt.Sprintf("a log that names no container says: %s", why.Cut(all[0].text, 200))
	if len(r.Findings) == 0 {
		if p.Row == nil && strings.Contains(r.Sentence, "nothing is wrong") {
			r.Sentence += "; but " + says
		}
		return r
	}
	f := &r.Findings[0]
	whole := r.Sentence
	f.Sentence = with(f.Sentence, says)
	if r.Sentence = with(whole, says); f.Confidence == result.Possible && strings.HasSuffix(r.Sentence, whyNot) {
		r.Sentence = strings.TrimSuffix(r.Sentence, whyNot)
	}
	for _, one := range all {
		for _, q := range one.quotes {
			if !slices.Contains(f.Evidence, q) {
				f.Evidence = append(f.Evidence, q)
			}
		}
	}
	return r
}

// whyNot is how the report of a line of kubectl get pods ends if nothing says why.
const whyNot = "; why is not in the evidence: give the description of the pod and its logs"

// with returns a sentence with what a log says, instead of the words that there is none.
func with(sentence, says string) string {
	for _, no := range []string{NoLog, whyNot} {
		if before, after, has := strings.Cut(sentence, no); has {
			return before + ", and " + says + after
		}
	}
	return sentence + "; " + says
}

// read returns what the logs say of which no container is known, those that tell the end of a program.
func read(ctx context.Context, p *evidence.Pod, secrets bool) (out []said) {
	for _, b := range p.Beside {
		if !b.Unnamed || len(out) == mostSaid {
			continue
		}
		hits, last, err := b.ScanFor(ctx, evidence.Search([]evidence.Pattern{evidence.Ending}))
		if err != nil {
			continue
		}
		if told, is := b.Told(path.Base(b.Source.File), hits, last, secrets); is {
			out = append(out, said{told.Text, told.Quotes})
		}
	}
	return out
}
