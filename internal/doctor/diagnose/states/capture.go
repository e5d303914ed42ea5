package states

import (
	"slices"
	"strings"
)

// A CaptureFailure is a reason why a container of a mesh could not set up the capture, or found that it is not there.
type CaptureFailure struct {
	says []string // texts of its log, in lower case
	Why  string
	Do   string
}

// RulesMissing is the failure of a check: the rules are written before any container runs, and not again.
var RulesMissing = CaptureFailure{
	[]string{"failed to validate networking configuration", "rules are rewriting", "iptables validation failed", "validation timeout"},
	"the rules that send its connections to the proxy are not there; most likely the pod came before the plugin was ready on its node",
	"see the mesh's CNI plugin on this node (its DaemonSet, and the order of the plugins), and then make the pod anew (delete it): only a new one gets rules, and that the container is restarted does not help",
}

// NotValid is the exit code of Istio's check of the capture. Source: istio tools/istio-iptables/pkg/constants.
const NotValid = 126

// captureFailures has the failures of what sets up a capture; the first that fits counts. The first row is for what only
// checks it.
var captureFailures = []CaptureFailure{
	RulesMissing,
	{RulesMissing.says, "the rules that it wrote do not work", "see whether another program writes rules in the pod, or the kernel of the node lacks a module that they need"},
	{[]string{"must be root", "operation not permitted", "permission denied"}, "it may not write rules", "let it run as root with the capabilities NET_ADMIN and NET_RAW, as the mesh's template does; a securityContext of the whole pod must not change that"},
	{[]string{"chain already exists", "already exists", "file exists"}, "its rules are there already", "recreate the pod; a container that was restarted finds the rules of the run before"},
	{[]string{"(legacy): cannot initialize", "(legacy): can't initialize", "iptables-restore: unable to initialize table"}, "the node does not offer the tables of legacy iptables",
		"use the iptables of nftables in it (Linkerd: proxyInit.iptablesMode=nft), or load the module ip_tables on the node, or let the mesh's CNI plugin write the rules"},
	{[]string{"could not fetch rule set generation id"}, "the node does not offer nftables", "use legacy iptables in it (Linkerd: proxyInit.iptablesMode=legacy), load the module nf_tables on the node, or let the mesh's CNI plugin write the rules"},
	{[]string{"not supported", "no such file or directory", "module", "unknown option", "incompatible"}, "the node's kernel or its programs lack what the rules need", "load the modules on the node (iptable_nat, xt_REDIRECT, xt_owner, nf_nat), or choose the other variant of iptables"},
	{[]string{"not registered", "unable to find registered", "failed to find service", "no service instance", "no registered", "service registration", "correct number of services"}, "the mesh does not know the pod", "see whether a Service selects the pod (with ACLs its name is the service account's), and whether the mesh's controller registers it: waiting does not help"},
	{[]string{"timed out", "timeout", "connection refused", "i/o timeout"}, "it got no answer", "see whether the mesh's control plane answers, and whether the rules of a network plugin are in place"},
}

// OfCapture returns what the last lines of the log of such a container say, with the index of the line, and false if they
// say none of it. Of a container that only checks the capture, a call that was refused is the check itself.
func OfCapture(lines []string, checks bool) (f CaptureFailure, line int, is bool) {
	for i, f := range captureFailures {
		if line := slices.IndexFunc(lines, func(text string) bool {
			text = strings.ToLower(text)
			return slices.ContainsFunc(f.says, func(says string) bool { return strings.Contains(text, says) })
		}); line >= 0 && (i == 0) == checks {
			return f, line, true
		}
	}
	return CaptureFailure{}, 0, false
}
