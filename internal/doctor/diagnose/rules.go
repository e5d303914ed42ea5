package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/doctor/diagnose/beside"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/history"
	"outrider.dev/internal/doctor/diagnose/node"
	"outrider.dev/internal/doctor/diagnose/nopod"
	"outrider.dev/internal/doctor/diagnose/phases"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/unnamed"
	"outrider.dev/internal/doctor/diagnose/witness"
	"outrider.dev/internal/doctor/evidence"
)

// Options of a diagnosis.
type Options struct {
	ShowSecrets bool          // do not mask text that looks like a secret
	Slow        time.Duration // a start that takes longer is a finding; 0: [phases.SlowStart]
}

// A rule looks for one cause.
type rule func(*subject) []result.Finding

// rules lists all rules. A finding of an earlier rule may explain findings of later rules: without an image nothing
// starts, and an application whose proxy died also has failed calls.
var rules = []rule{
	nodeLost, podEnded, finalizerHolds, containerState, notStarted, hookFails, proxyDied, neverReady, captureLost, startupRace, ambientRace, orderBroken, shaped(chain.InitWithoutNetwork), shutdownRace, siblingStopped, shaped(chain.KilledAtStop),
	captureFails, jobDoesNotEnd, killedByProbe, outOfMemory, withoutProxy, dependencyDown, nameNotResolved, inVain, probeFails, shaped(chain.EndedBeforeReady), ownCrash, calledElsewhere,
}

func withoutProxy(s *subject) []result.Finding    { return s.beside.WithoutProxy(s.Pod, s.Calls) }
func calledElsewhere(s *subject) []result.Finding { return s.CalledElsewhere(s.beside.Targets) }

func nodeLost(s *subject) []result.Finding { return node.Lost(s.Pod) }
func inVain(s *subject) []result.Finding   { return s.InVain() }

// Diagnose returns the diagnosis of a pod from its evidence. It fails only if ctx ends.
func Diagnose(ctx context.Context, p *evidence.Pod, o Options) (result.Report, error) {
	if p.Row != nil && len(p.Containers) == 0 {
		r := nopod.Row(p)
		files, err := witness.Read(ctx, p, nil, o.ShowSecrets)
		if err != nil {
			return r, err
		}
		files.OfRow(&r)
		if r.Verdict == result.Nothing {
			if f, err := facts.Of(ctx, p, o.ShowSecrets); err == nil {
				r.Sentence = cmp.Or(chain.Waited(f), r.Sentence)
			}
		}
		return unnamed.Complete(ctx, p, r, o.ShowSecrets), ctx.Err()
	}
	c, err := chain.Of(ctx, p, o.ShowSecrets)
	if err != nil {
		return result.Report{}, err
	}
	files, err := witness.Read(ctx, p, c.Calls, o.ShowSecrets)
	if err != nil {
		return result.Report{}, err
	}
	s := &subject{c, o, files}
	r := result.Report{Version: result.Version, Pod: p.Name()}
	for rank, rule := range rules {
		for _, f := range rule(s) {
			f.Rank = rank
			if c.Proxy != nil && f.Container == c.Proxy.Name && (f.Code == "container-not-created" || slices.Contains(beside.Unready(), f.Code)) {
				files.Control(ctx, c.Proxy, &f)
			}
			if f.Code == "not-scheduled" {
				files.Placement(&f, f.Sentence)
			}
			r.Findings = append(r.Findings, f)
		}
	}
	for _, f := range endedOtherwise(s, r.Findings) {
		f.Rank = len(rules)
		r.Findings = append(r.Findings, f)
	}
	if p.Omitted.Units || p.Omitted.Words {
		nopod.Unsure(r.Findings, p.Omitted.Units && c.Proxy == nil)
	}
	r.Start, r.Tracks = phases.Of(s.Pod), history.Tracks(c.Pod, c.Calls)
	if len(r.Findings) == 0 { // any other finding explains a slow start too
		r.Findings = phases.Slow(s.Pod, r.Start, o.Slow)
	}
	unnamed.Bound(p, r.Findings)
	s.conclude(&r)
	chain.GotOver(r.Findings)
	chain.KeptOpen(c, &r, chain.KeepsOpen(c, s.serves))
	if q, matters := s.NodeThen(); matters && len(r.Findings) > 0 && beside.Node(r.Findings[0]) {
		r.Findings[0].Evidence = append(r.Findings[0].Evidence, q)
	}
	for i := range r.Findings {
		do := &r.Findings[i].Remedy
		if beside.Manifest(r.Findings[i]) && evidence.IsStatic(s.Object) && !strings.Contains(do.Sentence, "static pod") {
			do.Sentence = strings.TrimPrefix(do.Sentence+fmt.Sprintf("; it is a static pod: change it in its file on node %s (the kubelet's staticPodPath, often /etc/kubernetes/manifests)", s.Object.Spec.NodeName), "; ")
		}
	}
	var quotes []evidence.Quote
	for _, f := range r.Findings {
		quotes = append(quotes, f.Evidence...)
	}
	r.Timeline = history.Timeline(c.Pod, c.Calls, quotes)
	for _, m := range s.Lacking {
		if m.Kind == evidence.FromLog && r.Quotes(m.What) {
			continue // it was read as a file beside the pod
		}
		r.Missing = append(r.Missing, fmt.Sprintf("%s: %s", m.What, m.Why))
	}
	for _, n := range s.Notes {
		if n.Zone != "" && !history.ZoneMatters(s.Container(n.Zone), r.Verdict, r.Findings) || !beside.Note(n, &r) {
			continue
		}
		r.Notes = append(r.Notes, fmt.Sprintf("%s (%s)", n.Text, n.Source.Place()))
	}
	switch told := slices.Concat(s.Reasons, s.ProxyReasons); {
	case p.Row != nil:
		nopod.WithLogs(p, &r, told, s.Calls.Quotes())
	case p.Omitted.Units:
		nopod.OfLogs(&r, told, s.Calls.Quotes())
	}
	return unnamed.Complete(ctx, p, r, o.ShowSecrets), ctx.Err()
}

// conclude sorts the findings and sets the verdict. If there is a more certain finding, it drops the findings whose
// confidence is only Possible.
func (s *subject) conclude(r *result.Report) {
	r.Findings = beside.Once(r.Findings, func(q evidence.Quote) bool {
		return slices.ContainsFunc(s.Calls, func(y calls.Call) bool { return y.Quote == q })
	})
	beside.Consequences(r.Findings)
	slices.SortStableFunc(r.Findings, func(a, b result.Finding) int {
		sure := func(f result.Finding) bool { return f.Confidence != result.Possible }
		if sure(a) != sure(b) {
			return map[bool]int{true: -1, false: 1}[sure(a)]
		}
		if a.Over != b.Over {
			return map[bool]int{true: 1, false: -1}[a.Over]
		}
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(b.Confidence.Degree(), a.Confidence.Degree()))
	})
	switch {
	case len(r.Findings) == 0:
		r.Verdict, r.Sentence = result.Nothing, s.nothing()
		if lacks := s.Lacks(); len(lacks) > 0 {
			r.Verdict, r.Sentence, r.Findings = s.unready(lacks)
			if r.Verdict == result.Undecided {
				r.Decide = r.Findings[0].Remedy.Command
			}
		}
	case r.Findings[0].Confidence != result.Possible:
		r.Verdict, r.Sentence = result.Found, r.Findings[0].Sentence
		r.Findings = slices.DeleteFunc(r.Findings, func(f result.Finding) bool { return f.Confidence == result.Possible })
	default:
		r.Verdict = result.Undecided
		var suspects []string
		for _, f := range r.Findings {
			suspects = append(suspects, string(f.Code))
		}
		if suspects = slices.Compact(suspects); len(suspects) == 1 {
			r.Sentence = "undecided; possibly: " + r.Findings[0].Sentence
			if suspects[0] == "app-crash" {
				r.Sentence = "undecided: " + r.Findings[0].Sentence
			}
		} else {
			r.Sentence = fmt.Sprintf("undecided: the evidence fits %s", strings.Join(suspects, " and "))
		}
		r.Decide = s.decide(r.Findings)
	}
}

// nothing returns the summary of a pod without findings.
func (s *subject) nothing() string {
	restarts := 0
	for _, c := range s.Containers {
		restarts += max(c.Restarts, 0)
	}
	switch said, once := s.healedHook(); {
	case once:
		return said
	case restarts > 0:
		return fmt.Sprintf("its containers restarted %d times, and the evidence does not say why; it shows nothing else that is wrong", restarts)
	case chain.Waited(s.Pod) != "":
		return chain.Waited(s.Pod)
	case len(s.Lacking) > 0:
		return "nothing is wrong as far as the evidence shows; some of it is missing"
	}
	return "nothing is wrong"
}

// decide returns a command whose output would show which of the suspects is the cause.
func (s *subject) decide(findings []result.Finding) string {
	in, container := "", findings[0].Container
	if s.Object.Namespace != "" {
		in = " -n " + s.Object.Namespace
	}
	crash := slices.ContainsFunc(findings, func(f result.Finding) bool { return f.Code == "app-crash" }) // its own log decides, not the proxy's
	switch {
	case s.Proxy != nil && !s.ReadyIsKnown() && !crash:
		return fmt.Sprintf("kubectl logs%s %s -c %s --timestamps", in, s.Object.Name, s.Proxy.Name)
	case container != "":
		command := fmt.Sprintf("kubectl logs%s %s -c %s --timestamps", in, s.Object.Name, container)
		if c := s.Container(container); c != nil && facts.IsPrevious(c, facts.Ended(c)) {
			command += " --previous"
		}
		return command
	}
	return fmt.Sprintf("kubectl get events%s --field-selector involvedObject.name=%s", in, s.Object.Name)
}
