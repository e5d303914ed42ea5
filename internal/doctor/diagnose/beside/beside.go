// Package beside says which findings, remarks and notes may stand beside which others. What is true alone may be false, or
// of no use, beside another finding: an event of a step that is over, a container's end that the end of its pod explains,
// a clock that decides nothing.
package beside

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// A relation of the containers that two findings are about.
type relation int

const (
	anywhere  relation = iota // whichever they are about
	same                      // the same container
	others                    // the second is about another container
	ofThePod                  // the second is about a container, or the pod, and the first about the pod as a whole
	moved                     // the first is about a pod that was moved, as by a drain, and not about a lack on its node
	inItsCall                 // both quote the same failed call, or line of an end
	answersSo                 // the same container, whose probe it answers with a status of its own failure
	behind                    // the second is about another container, and the first about one that answers as a gateway does
	alike                     // the same container, whose probes got the same answer
)

// A row says what becomes of findings with some codes beside one of other codes that is not merely possible.
type row struct {
	why     string
	codes   []finding.Code
	beside  []finding.Code
	where   relation
	dropped bool // or else it is a consequence, which comes later in the report
}

var (
	unready    = []finding.Code{"configuration-rejected", "no-control-plane", "capture-not-in-place", "no-certificate"}
	atStart    = []finding.Code{"image-missing", "config-missing", "container-not-created"}
	podEnds    = []finding.Code{"evicted", "node-lost", "deadline-exceeded", "not-admitted"}
	aboutACall = []finding.Code{"dependency-down", "sibling-down", "name-not-resolved"}
)

// rows is the table.
var rows = []row{
	{"the kubelet mounts volumes of a pod that has a node, then makes its sandbox, then its containers", []finding.Code{"not-scheduled"}, append([]finding.Code{"volume-missing", "no-sandbox"}, atStart...), anywhere, true},
	{"the sandbox comes after the volumes", []finding.Code{"volume-missing"}, append([]finding.Code{"no-sandbox"}, atStart...), anywhere, true},
	{"the containers come after the sandbox", []finding.Code{"no-sandbox"}, atStart, anywhere, true},
	{"the pod says how its containers ended", podEnds, podEnds, ofThePod, true},
	{"what has ended is not asked any more", []finding.Code{"probe-fails", "proxy-not-ready", "state-not-known"}, podEnds, ofThePod, true},
	{"the runtime says why it ended", []finding.Code{"proxy-died"}, []finding.Code{"container-not-created"}, same, true},
	{"another rule says why it is not ready", []finding.Code{"proxy-not-ready"}, append([]finding.Code{"proxy-died", "proxy-out-of-memory"}, atStart...), same, true},
	{"the init container's own rule says more", []finding.Code{"app-crash"}, []finding.Code{"capture-not-in-place"}, same, true},
	{"an earlier rule is about the same call", append([]finding.Code{"app-crash"}, aboutACall...), nil, inItsCall, true},

	{"its liveness probe, which got the same answer, ends it", []finding.Code{"probe-fails"}, []finding.Code{"killed-by-probe"}, alike, true},

	{"the container that was called has a fault of its own", []finding.Code{"sibling-down"}, append([]finding.Code{"app-crash", "out-of-memory"}, atStart...), others, false},
	{"a hold ends in vain while its proxy is not ready", []finding.Code{"hold-fails-open"}, unready, anywhere, false},
	{"a proxy that is not ready is ended by its own probe, or ends itself", []finding.Code{"proxy-died"}, append([]finding.Code{"container-not-created", "killed-by-probe"}, unready...), same, false},
	{"a container that waits for its call is ended by its own probe", []finding.Code{"killed-by-probe"}, slices.Concat(unready, aboutACall, []finding.Code{"startup-race", "hold-without-effect"}), same, false},
	{"a program that does not reach what it calls says so to its probe", []finding.Code{"probe-fails"}, aboutACall, answersSo, false},
	{"a gateway fails while what lies behind it does", []finding.Code{"probe-fails"}, append([]finding.Code{"app-crash", "out-of-memory"}, atStart...), behind, false},
	{"a container that its liveness probe ends is not ready", []finding.Code{"probe-fails"}, []finding.Code{"killed-by-probe"}, same, false},
	{"a pod that is moved has no fault, but in how it stops", []finding.Code{"evicted"}, []finding.Code{"shutdown-race"}, moved, false},
	{"while a pod stops, its calls have no proxy", aboutACall, []finding.Code{"shutdown-race"}, same, false},
}

// ofALack matches the reasons of an eviction by the kubelet itself.
var ofALack = regexp.MustCompile(`^(?:TerminationByKubelet|Evicted|OutOf)`)

var (
	ofItsOwn  = regexp.MustCompile(`statuscode: 5\d\d\b`)
	ofGateway = regexp.MustCompile(`statuscode: 50[24]\b`)
)

// says reports whether a quote of a finding has a form.
func says(f result.Finding, form *regexp.Regexp) bool {
	return slices.ContainsFunc(f.Evidence, func(q evidence.Quote) bool { return form.MatchString(q.Text) })
}

// fits reports whether two findings are related as a row wants it.
func (w row) fits(f, g result.Finding, isCall func(evidence.Quote) bool) bool {
	if g.Confidence == result.Possible || !slices.Contains(w.codes, f.Code) || w.beside != nil && !slices.Contains(w.beside, g.Code) {
		return false
	}
	switch w.where {
	case same:
		return f.Container == g.Container
	case others:
		return f.Container != g.Container && g.Container != ""
	case ofThePod:
		return g.Container == "" && (f.Container != "" || f.Code == "state-not-known")
	case moved:
		return f.Container == "" && !says(f, ofALack)
	case answersSo:
		return f.Container == g.Container && says(f, ofItsOwn)
	case behind:
		return f.Container != g.Container && g.Container != "" && says(f, ofGateway)
	case alike:
		_, a, told := strings.Cut(f.Sentence, ": ")
		_, b, _ := strings.Cut(g.Sentence, ": ")
		return f.Container == g.Container && told && a == b
	case inItsCall:
		return slices.ContainsFunc(f.Evidence, func(q evidence.Quote) bool { return slices.Contains(g.Evidence, q) && isCall(q) })
	}
	return true
}

// Once returns the findings, in the order of their rules, without those that are false or of no use beside another one.
// Where findings tell the same failed call, the one of the earlier rule stays.
func Once(all []result.Finding, isCall func(evidence.Quote) bool) (out []result.Finding) {
	for i, f := range all {
		if !slices.ContainsFunc(rows, func(w row) bool {
			before := all
			if w.where == inItsCall {
				before = out
			}
			return w.dropped && slices.ContainsFunc(before, func(g result.Finding) bool { return w.fits(f, g, isCall) })
		}) {
			out = append(out, all[i])
		}
	}
	return out
}

// Consequences marks findings that another one explains, which may be a consequence itself. The advice about a probe that
// fails so is to end the cause.
func Consequences(all []result.Finding) {
	rules := slices.Clone(all) // as the rules have them
	for i := range all {
		for _, w := range rows {
			if w.dropped {
				continue
			}
			j := slices.IndexFunc(rules, func(g result.Finding) bool {
				return (w.where != same && w.where != answersSo || !g.Over) && w.fits(all[i], g, nil)
			})
			if j >= 0 {
				all[i].Over = true
			}
			if j >= 0 && (all[i].Code == "probe-fails" || all[i].Code == "killed-by-probe") {
				all[i].Remedy = finding.Remedy{Sentence: fmt.Sprintf("end what %s says of %s: this follows from it", rules[j].Code, rules[j].Container)}
			}
		}
	}
}

// Unready returns the codes of proxies that are not ready for a reason that is known.
func Unready() []finding.Code { return slices.Clone(unready) }

// ofTheNode are the codes of findings in which a young node, or one that is not ready, may have a part.
var ofTheNode = slices.Concat(unready, aboutACall, podEnds, []finding.Code{
	"startup-race", "hold-fails-open", "order-not-kept", "init-needs-network", "no-sandbox", "volume-missing", "not-scheduled", "proxy-not-ready", "proxy-died", "slow-start", "state-not-known",
})

// Node reports whether the state of the pod's node belongs to the first finding.
func Node(f result.Finding) bool {
	return f.Confidence == result.Possible || slices.Contains(ofTheNode, f.Code)
}

// elsewhere are the codes of findings about a container with nothing to change in the pod's own manifest.
var elsewhere = append([]finding.Code{"dependency-down", "name-not-resolved", "no-control-plane", "no-certificate", "state-not-known"}, podEnds...)

// Manifest reports whether the remedy of a finding is a change of the pod's manifest.
func Manifest(f result.Finding) bool {
	return f.Container != "" && !slices.Contains(elsewhere, f.Code)
}

// byTime are the codes of findings that order times of several clocks.
var byTime = slices.Concat(aboutACall, []finding.Code{
	"startup-race", "shutdown-race", "hold-fails-open", "hold-without-effect", "order-not-kept", "init-needs-network", "killed-while-waiting", "proxy-died", "proxy-out-of-memory", "proxy-not-ready", "job-never-ends", "slow-start",
})

// Note reports whether a note about the evidence says something to a reader of a report: a clock where times decide, a run
// of which nothing is known where no cause is found.
func Note(n evidence.Note, r *result.Report) bool {
	switch n.About {
	case evidence.OfClock:
		return r.Verdict != result.Found || slices.ContainsFunc(r.Findings, func(f result.Finding) bool { return slices.Contains(byTime, f.Code) })
	case evidence.OfRuns:
		return r.Verdict != result.Found
	}
	return true
}
