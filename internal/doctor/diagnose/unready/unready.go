// Package unready has the reasons why a proxy is not ready, by the lines of its log, and finds them of pods of which nothing
// but a line of kubectl get pods and logs are known.
package unready

import (
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
)

// A Reason is a reason why a proxy is not ready.
type Reason struct {
	Said   facts.Topic // of the lines that show it
	Code   finding.Code
	What   string
	Remedy string
}

// By returns the reason with what a line says of the certificate that is not accepted.
func (u Reason) By(line string) Reason {
	if refused := why.OfCertificate(line); u.Said == facts.Untrusted && refused != "" {
		u.What += ": " + refused
	}
	return u
}

// CaptureRemedy ends a capture that is not in place.
const CaptureRemedy = "run outrider-agent capture again in a container of the pod with NET_ADMIN, or make a new pod, and find the program that removed the rules or wrote others (nft list ruleset, iptables-save)"

// Reasons lists the reasons, the more exact ones first.
var Reasons = []Reason{
	{facts.Rejected, "configuration-rejected", "it rejects its configuration", "see the message for the field: it is of a resource that was changed, an EnvoyFilter for instance"},
	{facts.Untrusted, "no-certificate", "its control plane was reached, but a certificate between the two is not accepted", "see whether the trust anchors of the pod (with Istio ConfigMap istio-ca-root-cert of its namespace) and the issuer of the control plane belong together, and whether both are still valid (linkerd check, istioctl proxy-config secret); then restart the control plane, and the pods after it"},
	{facts.Denied, "no-certificate", "its control plane was reached, and refuses it", "see the log of the control plane for the reason, and whether the pod's token (its audience, its expiry) and service account are those that it accepts"},
	{facts.NoControlPlane, "no-control-plane", "it does not reach its control plane", "see whether the control plane runs, and whether a NetworkPolicy lets the pod reach it"},
	{facts.Uncaptured, "capture-not-in-place", "connections do not come to it", CaptureRemedy},
	{facts.NoCertificate, "no-certificate", "it has no certificate", "see whether the control plane signs, and whether the pod's token and roots are current"},
}

// OfRow finds a proxy that is not ready by its own log, of a pod whose line of kubectl get pods counts a container that is not
// ready. The line does not say which one, so that the log decides: it has a reason, and never says that the proxy is ready.
func OfRow(s *facts.Pod) []result.Finding {
	line := s.Row
	if line == nil || s.Proxy == nil || line.Ready >= line.Of || s.Deleted() || line.Status == "Completed" || strings.HasPrefix(line.Status, "Init:") {
		return nil
	}
	run, logged := 0, false
	for _, l := range s.Proxy.Logs {
		if !logged || l.Run > run {
			run, logged = l.Run, true
		}
	}
	ready := slices.ContainsFunc(s.Said.In(run, facts.SaysReady), func(q evidence.Quote) bool { return !facts.IsWorkers(q) })
	if ready {
		return nil
	}
	sure := result.Possible
	if len(s.Said.In(run, facts.Begins))+len(s.Said.In(run, facts.Waits)) > 0 || slices.ContainsFunc(s.Proxy.Logs, facts.FromStart) {
		sure = result.Likely
	}
	for _, u := range Reasons {
		said := s.Said.In(run, u.Said)
		if len(said) == 0 {
			continue
		}
		last := said[len(said)-1]
		u = u.By(last.Text)
		return []result.Finding{{
			Code: u.Code, Container: s.Proxy.Name, Confidence: sure,
			Sentence: fmt.Sprintf("%s is not ready: %s", s.Proxy.Name, u.What),
			Evidence: []evidence.Quote{last, {Source: line.Source, Text: fmt.Sprintf("READY %d/%d, STATUS %s", line.Ready, line.Of, line.Status)}},
			Disproof: fmt.Sprintf("a later line of the log of %s that says that it is ready", s.Proxy.Name),
			Remedy:   finding.Remedy{Sentence: u.Remedy, Command: s.Kubectl("logs %s -c %s", s.Object.Name, s.Proxy.Name)},
		}}
	}
	return nil
}
