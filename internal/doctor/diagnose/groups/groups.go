// Package groups diagnoses the pods of a set and puts those with the same cause in groups: how many of which
// workloads have it, since when, what they have in common, and what changed before.
//
// Two pods have the same cause if their diagnoses say the same, apart from what is each pod's own: names of pods, nodes
// and ReplicaSets, addresses, times and numbers (alike.go). Whether they must also be of one workload, namespace or node
// depends on the kind of cause (scopes). A pod without a log that ended as another one of its revision is in the group of
// that one (pattern.go), and one whose calls fail on a node where a part of the network does not run in that part's (node.go).
package groups

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/diagnose/nopod"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// Diagnose returns the reports of all pods of a set, and of the workloads that cannot create pods. The first report of
// each group has the group. It fails only if ctx ends.
func Diagnose(ctx context.Context, set *evidence.Set, o diagnose.Options) ([]result.Report, error) {
	reports := make([]result.Report, 0, len(set.Pods)+len(set.Creators))
	for _, p := range set.Pods {
		r, err := diagnose.Diagnose(ctx, p, o)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	for _, w := range set.Creators {
		reports = append(reports, nopod.Creation(w, o.ShowSecrets))
	}
	group(set, reports, o)
	noteUnused(set, reports)
	return reports, nil
}

// noteUnused notes the files beside pods with a finding that no finding quotes, and takes out those that one does.
func noteUnused(set *evidence.Set, reports []result.Report) {
	quoted := func(file string) bool {
		return slices.ContainsFunc(reports, func(r result.Report) bool { return r.Quotes(file) })
	}
	set.Unused = slices.DeleteFunc(set.Unused, func(u evidence.Unused) bool { return u.Source.File != "" && quoted(u.Source.File) })
	known := map[string]bool{}
	for _, u := range set.Unused {
		known[u.Source.File] = true
	}
	for _, p := range set.Pods {
		known[p.Source.File] = true
		for _, e := range p.Events {
			known[e.Source.File] = true
		}
	}
	for i, p := range set.Pods {
		if reports[i].Verdict.Well() {
			continue
		}
		for _, b := range p.Beside {
			if file := b.Source.File; b.Of == "" && !known[file] && !quoted(file) {
				known[file] = true
				set.Unused = append(set.Unused, evidence.Unused{Source: b.Source, Why: "it was read, and says nothing that a finding needs"})
			}
		}
	}
}

// A member is a pod, or a workload that cannot create pods, with its report.
type member struct {
	report   *result.Report
	pod      *evidence.Pod // nil: a workload that cannot create pods
	workload string        // KIND NAMESPACE/NAME
	name     string        // of the pod or workload, without a namespace
	in       string        // namespace
	shape    string        // of the sentence
	group    string        // key of the group; empty: nothing is wrong
	alike    bool          // its cause is taken from another member, since it ended in the same way (pattern.go)
	beside   bool          // and it is another one: a part of its node's network that does not run (node.go)
}

// group adds groups to the reports.
func group(set *evidence.Set, reports []result.Report, o diagnose.Options) {
	all := make([]member, len(reports))
	groups := map[string][]int{}
	var keys []string
	of := map[string][]int{} // pods by workload
	spread := namespaces{}
	for i := range reports {
		m := member{report: &reports[i]}
		if i < len(set.Pods) {
			m.pod = set.Pods[i]
			m.workload, m.name, m.in = workloadOf(m.pod), m.pod.Object.Name, m.pod.Object.Namespace
			of[m.workload] = append(of[m.workload], i)
		} else {
			w := set.Creators[i-len(set.Pods)]
			m.workload, m.name, m.in = w.About(), w.Name, w.Namespace
		}
		if !m.report.Verdict.Well() {
			m.shape = shapeOf(m)
			spread.add(m)
		}
		all[i] = m
	}
	for i := range all {
		if m := &all[i]; !m.report.Verdict.Well() {
			m.group = m.key(spread)
		}
	}
	patterns(all)
	besideNode(all)
	for i := range all {
		if m := &all[i]; m.group != "" {
			if groups[m.group] == nil {
				keys = append(keys, m.group)
			}
			groups[m.group] = append(groups[m.group], i)
		}
	}
	h := newHistory(set, o)
	for _, key := range keys {
		var members []member
		for _, i := range groups[key] {
			members = append(members, all[i])
		}
		own, members := byEvidence(members)
		first := members[0].report
		for _, m := range members[1:] {
			m.report.SameAs = first.Pod
		}
		g := &result.Group{Sentence: sentence(own), Remedy: remedy(own), Workloads: workloads(members)}
		g.Sentence += byPattern(members[len(own):])
		for _, w := range g.Workloads {
			g.Of += len(of[w])
		}
		for _, m := range members {
			g.Members = append(g.Members, m.report.Pod)
			if m.pod != nil {
				g.Pods++
			}
		}
		g.Since, g.Earlier = since(members)
		g.Common = h.common(members, func(yield func(member) bool) { // the other pods of the same workloads
			for _, w := range g.Workloads {
				for _, i := range of[w] {
					if all[i].group != key && !yield(all[i]) {
						return
					}
				}
			}
		})
		g.Changes = h.before(members, g.Since)
		if len(reports) > 1 || len(g.Changes) > 0 {
			first.Group = g
		}
	}
}

// A scope is the part of a cluster in which the same words mean the same cause.
type scope int

const (
	workload  scope = iota // the cause lies in the pod template, or its sentence names no object
	namespace              // the sentence names an object of the namespace, or a destination; of many namespaces it is one cause
	node
	cluster
)

// scopes has the scope of each kind of cause; others have the scope workload.
var scopes = map[finding.Code]scope{
	"config-missing": namespace, "volume-missing": namespace, "dependency-down": namespace, "name-not-resolved": namespace, "pods-not-created": namespace,
	"image-missing": cluster, "no-control-plane": cluster, "no-certificate": cluster, "not-scheduled": namespace,
	"node-lost": node, "no-sandbox": cluster, "evicted": node, "not-admitted": node,
}

// byCode has the kinds of cause that are the same for all pods of a scope, whatever else the sentence says: how the
// container ended, or how long something took.
var byCode = map[finding.Code]bool{
	"startup-race": true, "shutdown-race": true, "hold-fails-open": true, "hold-without-effect": true, "killed-while-waiting": true, "job-never-ends": true,
	"out-of-memory": true, "proxy-out-of-memory": true, "proxy-died": true, "no-control-plane": true, "no-certificate": true, "slow-start": true,
}

// namespaces has the namespaces in which a sentence is said.
type namespaces map[string]map[string]bool

// many is the number of namespaces from which on what they have in common is one cause: each of them lacks the same
// Secret, or its pods are refused for the same reason.
const many = 3

func (n namespaces) add(m member) {
	if n[m.shape] == nil {
		n[m.shape] = map[string]bool{}
	}
	n[m.shape][m.in] = true
}

// key returns the same text for members with the same cause.
func (m member) key(spread namespaces) string {
	code, container := finding.Code(m.report.Verdict), ""
	if len(m.report.Findings) > 0 {
		container = m.report.Findings[0].Container
		if m.report.Verdict == result.Found {
			code = m.report.Findings[0].Code
		}
	}
	parts := []string{string(code), m.shape}
	switch scopes[code] {
	case workload:
		parts = append(parts, container, m.workload)
	case namespace:
		if len(spread[m.shape]) < many {
			parts = append(parts, m.in)
		}
		if strings.Contains(m.shape, "ADDRESS") { // which may be another destination for another workload
			parts = append(parts, m.workload)
		}
	case node:
		parts = append(parts, m.pod.Object.Spec.NodeName)
		if m.pod.Object.Spec.NodeName == "" {
			parts = append(parts, m.workload)
		}
	case cluster:
	}
	return strings.Join(parts, "\x00")
}

// workloadOf returns the outermost owner of a pod, as KIND NAMESPACE/NAME. If the evidence does not show the owners of a
// pod, the name of the pod stands for it, without its generated end.
func workloadOf(p *evidence.Pod) string {
	if n := len(p.Owners); n > 0 {
		return evidence.About(p.Owners[n-1].Kind, p.Object.Namespace, p.Owners[n-1].Name)
	}
	if !p.Omitted.Meta && p.Row == nil {
		return evidence.About("Pod", p.Object.Namespace, p.Object.Name)
	}
	if base := generated.ReplaceAllString(p.Object.Name, ""); base != p.Object.Name {
		return evidence.About("Pods", p.Object.Namespace, base+"-…")
	}
	return evidence.About("Pod", p.Object.Namespace, p.Object.Name)
}

// workloads returns the workloads of the members, those with the most of them first.
func workloads(members []member) (out []string) {
	counts := map[string]int{}
	for _, m := range members {
		if counts[m.workload]++; counts[m.workload] == 1 {
			out = append(out, m.workload)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	return out
}

// since returns the first sign of the cause, and whether it may have begun before: the first time in the evidence of its
// first finding, or the time since which a pod is not ready. Times of logs whose zone is not known do not count.
func since(members []member) (first evidence.Time, earlier bool) {
	sign := func(at evidence.Time) {
		if at.Known() && (at.Clock == evidence.NodeClock || at.Clock == evidence.APIClock) && (!first.Known() || at.At.Before(first.At)) {
			first = at
		}
	}
	for _, m := range members {
		if len(m.report.Findings) == 0 {
			continue
		}
		f := m.report.Findings[0]
		for _, q := range f.Evidence {
			sign(q.At)
		}
		if m.pod == nil {
			continue
		}
		for _, e := range m.pod.Events {
			if quotes(f, e) {
				sign(e.First)
			}
		}
		c := m.pod.Container(f.Container)
		earlier = earlier || c != nil && (c.Unknown > 0 || c.Restarts < 0)
	}
	if !first.Known() {
		earlier = false
		for _, m := range members {
			sign(unready(m.pod))
		}
	}
	return first, earlier && first.Known()
}

// quotes reports whether an event says the same as a finding. The finding may quote a status, which has no time, or the
// last time of the event.
func quotes(f result.Finding, e evidence.Event) bool {
	text := strings.TrimPrefix(e.Message, "Error: ")
	return len(text) > 8 && e.Container == f.Container &&
		(strings.Contains(f.Sentence, text) || slices.ContainsFunc(f.Evidence, func(q evidence.Quote) bool { return strings.Contains(q.Text, text) }))
}

// unready returns the time since which a pod is not ready, by its status.
func unready(p *evidence.Pod) (at evidence.Time) {
	if p == nil {
		return at
	}
	for _, c := range p.Object.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse {
			at = evidence.Second(c.LastTransitionTime.Time, evidence.NodeClock)
		}
	}
	return at
}
