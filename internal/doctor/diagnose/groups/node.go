package groups

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// networkParts matches containers through which the pods of a node reach Services and other pods: kube-proxy, what takes its
// place, and the agents of the usual plugins of the network.
var networkParts = regexp.MustCompile(`^(?:kube-proxy|cilium-agent|calico-node|kube-flannel|flannel|weave|weave-npc|antrea-agent|antrea-ovs|kube-router|aws-node|ovnkube-\w+|ovn-controller|kindnet-cni|ztunnel)$`)

// failing are the findings about a container that does not run.
var failing = []finding.Code{"app-crash", "out-of-memory", "container-not-created", "image-missing", "config-missing", "volume-missing", "killed-by-probe"}

// unreached matches what is said of a call within the cluster that a node without its network part cannot make.
var unreached = regexp.MustCompile(` (?:was refused at|got no answer from|could not connect to|could not resolve) `)

// besideNode gives the pods of a node whose calls failed the cause that a part of that node's network does not run: as
// likely, or as possible if it is not known what ended them.
func besideNode(all []member) {
	parts := map[string]int{} // by node
	for i, m := range all {
		if m.pod == nil || m.report.Verdict != result.Found || !slices.Contains(failing, codeOf(m)) {
			continue
		}
		if node := m.pod.Object.Spec.NodeName; node != "" && networkParts.MatchString(m.report.Findings[0].Container) {
			parts[node] = i
		}
	}
	for i := range all {
		m := &all[i]
		if m.pod == nil || m.group == "" || len(m.report.Findings) == 0 {
			continue
		}
		if j, has := parts[m.pod.Object.Spec.NodeName]; has && i != j && m.group != all[j].group {
			m.suffers(&all[j])
		}
	}
}

// suffers changes a report to the consequence of a part of the network that does not run, if it may be one.
func (m *member) suffers(part *member) {
	r, f := m.report, m.report.Findings[0]
	why := part.report.Findings[0]
	said := fmt.Sprintf("%s of its node does not run (%s)", why.Container, part.report.Pod)
	switch {
	case r.Verdict == result.Found && unreached.MatchString(f.Sentence):
		f.Sentence, f.Confidence = fmt.Sprintf("%s, most likely since %s", f.Sentence, said), result.Likely
		r.Sentence = f.Sentence
	case r.Verdict == result.Undecided && f.Code == "app-crash" && !strings.Contains(f.Sentence, "most likely"):
		f.Sentence = fmt.Sprintf("%s; possibly since %s", f.Sentence, said)
		r.Sentence = "undecided: " + f.Sentence
	default:
		return
	}
	f.Evidence = append(slices.Clone(f.Evidence), evidence.Quote{Source: part.pod.Source, Text: fmt.Sprintf("%s, on the same node: %s", part.report.Pod, why.Sentence)})
	f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("see first to %s of node %s: through it the pods of the node reach Services", why.Container, m.pod.Object.Spec.NodeName)}
	f.Patch, f.Change, f.Replay = "", "", nil
	r.Findings = append([]result.Finding{f}, r.Findings[1:]...)
	m.group, m.alike, m.beside = part.group, true, true
}
