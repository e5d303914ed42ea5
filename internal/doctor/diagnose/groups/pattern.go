package groups

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// Limits within which two runs ended in the same way.
const (
	sameTime   = 2 * time.Second  // two times of the status, each of which has a resolution of a second
	telling    = 10 * time.Second // a run of that length ends after a limit of its own, rather than at once as most failures do
	mostLike   = 200              // pods whose log tells why, of one revision
	ofDuration = 10               // part of the length by which two runs may differ
)

// patterns gives each undecided pod whose log is missing the cause of a pod of the same revision that ended in the same
// way and has the log. If two such pods have different causes, it gives none.
func patterns(all []member) {
	told := map[string][]int{} // by revision: the pods whose log tells why
	for i := range all {
		if of := madeBy(all[i]); of != "" && toldByLog(all[i]) && len(told[of]) < mostLike {
			told[of] = append(told[of], i)
		}
	}
	for i := range all {
		like, how := -1, result.Confidence("")
		for _, j := range told[madeBy(all[i])] {
			c := fits(&all[i], &all[j])
			if c == "" {
				continue
			}
			if like >= 0 && all[like].group != all[j].group {
				like = -1
				break
			}
			if like < 0 || c.Degree() > how.Degree() {
				like, how = j, c
			}
		}
		if like >= 0 {
			all[i].follow(&all[like], how)
		}
	}
}

// madeBy returns the nearest owner of a pod with the revision of its template; empty: it has no owner.
func madeBy(m member) string {
	if m.pod == nil || len(m.pod.Owners) == 0 {
		return ""
	}
	o := m.pod.Owners[0]
	return strings.Join([]string{m.in, o.Kind, o.Name, m.pod.Object.Labels[templateHash], m.pod.Object.Labels["controller-revision-hash"]}, "\x00")
}

// toldByLog reports whether the log of the container that the first finding of a pod is about is a part of its evidence.
func toldByLog(m member) bool {
	if m.report.Verdict != result.Found || len(m.report.Findings) == 0 || m.report.Findings[0].Container == "" {
		return false
	}
	c := m.pod.Container(m.report.Findings[0].Container)
	return c != nil && slices.ContainsFunc(m.report.Findings[0].Evidence, func(q evidence.Quote) bool {
		return slices.ContainsFunc(c.Logs, func(l *evidence.Log) bool { return l.Source.File == q.Source.File })
	})
}

// failure returns a run of a container that ended with a failure, the last one of those with a log, or of those without.
func failure(c *evidence.Container, withLog bool) *evidence.Run {
	for i := len(c.Runs) - 1; i >= 0; i-- {
		if r := &c.Runs[i]; r.Exit != nil && *r.Exit != 0 && (c.Log(r.Number) != nil) == withLog {
			return r
		}
	}
	return nil
}

// fits returns how well the end of a pod without a log fits one whose log tells why; empty: it does not.
func fits(m, like *member) result.Confidence {
	if m.report.Verdict != result.Undecided || len(m.report.Findings) == 0 || m.report.Findings[0].Container != like.report.Findings[0].Container {
		return ""
	}
	name := like.report.Findings[0].Container
	c, other := m.pod.Container(name), like.pod.Container(name)
	if c == nil || imageOf(m.pod, name) != imageOf(like.pod, name) {
		return ""
	}
	a, b := failure(c, false), failure(other, true)
	if a == nil || b == nil || *a.Exit != *b.Exit || a.Signal != b.Signal || a.Reason != b.Reason {
		return ""
	}
	took, tookToo, known := lasted(*a), lasted(*b), a.Started.Known() && b.Started.Known() && a.Finished.Known() && b.Finished.Known()
	if !known || (took-tookToo).Abs() > max(sameTime, tookToo/ofDuration) {
		return ""
	}
	others, same := otherStarts(m.pod, like.pod, name, *a, *b)
	if same && a.Number == b.Number && (others > 0 || tookToo >= telling) {
		return result.Likely
	}
	return result.Possible
}

func lasted(r evidence.Run) time.Duration { return r.Finished.At.Sub(r.Started.At) }

func imageOf(p *evidence.Pod, container string) string {
	for _, c := range slices.Concat(p.Object.Spec.InitContainers, p.Object.Spec.Containers) {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

// otherStarts compares when the other containers of two pods first started, counted from the ends of two runs. It returns
// how many did so, and whether all did at the same time and as often.
func otherStarts(p, like *evidence.Pod, but string, a, b evidence.Run) (n int, same bool) {
	if len(p.Containers) != len(like.Containers) {
		return 0, false
	}
	for _, c := range p.Containers {
		other := like.Container(c.Name)
		if c.Name == but {
			continue
		}
		if other == nil || len(c.Runs) == 0 || len(other.Runs) == 0 || c.Runs[0].Number != other.Runs[0].Number {
			return n, false
		}
		x, y := c.Runs[0].Started, other.Runs[0].Started
		if !x.Known() || !y.Known() || (x.At.Sub(a.Finished.At)-y.At.Sub(b.Finished.At)).Abs() > sameTime {
			return n, false
		}
		n++
	}
	return n, true
}

// follow gives a report the cause of another one, as likely or possible, and puts it in the group of that one.
func (m *member) follow(like *member, how result.Confidence) {
	r, f := m.report, like.report.Findings[0]
	end := *failure(m.pod.Container(f.Container), false)
	says := fmt.Sprintf("%s ended as in %s, whose log shows why: %s", f.Container, like.report.Pod, f.Sentence)
	own := evidence.Quote{Source: end.Source, At: end.Finished, Text: fmt.Sprintf("%s, run %d: %s after %s, with the same image as in %s", f.Container, end.Number, facts.ExitText(end), facts.Duration(lasted(end)), like.report.Pod)}
	f.Against = []evidence.Quote{{Source: end.Source, Text: fmt.Sprintf("the log of run %d is missing: it may say something else", end.Number)}}
	f.Sentence, f.Confidence, f.Evidence, f.Replay = says, how, append([]evidence.Quote{own}, f.Evidence...), nil
	f.Disproof = "another reason at the end of the log of that run"
	if strings.Contains(f.Remedy.Command, like.name) {
		f.Remedy.Command = ""
	}
	m.group, m.alike = like.group, true
	if how == result.Likely {
		r.Verdict, r.Sentence, r.Findings, r.Decide = result.Found, says, []result.Finding{f}, ""
		return
	}
	r.Sentence, r.Findings = "undecided; possibly "+says, append([]result.Finding{f}, r.Findings...)
}

// byEvidence puts the members whose own evidence tells the cause before those that only follow their pattern.
func byEvidence(members []member) (own []member, all []member) {
	var rest []member
	for _, m := range members {
		if m.alike {
			rest = append(rest, m)
		} else {
			own = append(own, m)
		}
	}
	return own, append(slices.Clone(own), rest...)
}

// byPattern says how many members of a group follow the pattern of others, and how sure that is at least.
func byPattern(alike []member) string {
	how := result.Likely
	beside := len(slices.DeleteFunc(slices.Clone(alike), func(m member) bool { return !m.beside }))
	if beside > 0 {
		return fmt.Sprintf(" (%d pods on its node fail with it)", beside)
	}
	for _, m := range alike {
		if c := m.report.Findings[0].Confidence; c.Degree() < how.Degree() {
			how = c
		}
	}
	switch len(alike) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" (1 of them %s: its log is missing, and it ended in the same way)", how)
	}
	return fmt.Sprintf(" (%d of them %s: their logs are missing, and they ended in the same way)", len(alike), how)
}
