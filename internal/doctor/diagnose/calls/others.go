package calls

import (
	"regexp"

	"outrider.dev/internal/doctor/evidence"
)

var (
	// events matches records of events of Kubernetes, as exporters and watchers write them, and the kubelet's own words about a
	// probe, which no other program has.
	events = regexp.MustCompile(`"(?:involvedObject|regarding|involved_object)" ?: ?\{|(?i:\b(?:readiness|liveness|startup) probe (?:failed|errored)\b)`)
	// shipped matches the pod of a line that a shipper of logs writes with what it knows of its origin.
	shipped = regexp.MustCompile(`"(?:kubernetes" ?: ?\{[^{}]*"pod_name|k8s\.pod\.name|kubernetes_pod_name)" ?: ?"([^"]+)"`)
)

// isOfOther reports whether a line is about another pod, as an exporter of events and a shipper of logs write the failures of
// all others, or is an answer of kubectl that stands below a log. own is the name of the pod itself.
func isOfOther(line []byte, own string) bool {
	line = line[:min(len(line), mostOfLine)]
	m := shipped.FindSubmatch(line)
	return events.Match(line) || evidence.OfKubectl(line) || m != nil && string(m[1]) != own
}
