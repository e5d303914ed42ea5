package lint

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/startup"
)

// proxyUser finds containers that run as the proxy's user or group, so that their connections are not captured.
func proxyUser(s subject, b *builder) {
	if !s.captured() {
		return
	}
	for _, same := range s.bypasses() {
		what := map[string]string{"runAsUser": "user", "runAsGroup": "group"}[same.Setting]
		c := clue{code: "proxy-uid", title: fmt.Sprintf("%s runs as %s %d, which is the proxy's", same.Container, what, same.ID), field: parsePath(same.Field), evidence: fmt.Sprint(same.ID),
			why:    "its connections count as the proxy's own: none is captured, so it has no mutual TLS, no policy and no routing",
			do:     fmt.Sprintf("run it as a different %s", what),
			source: "istio IST0144; our own capture leaves a process alone by its user or its group"}
		if same.Kind == startup.Init { // a common way to give an init container network access
			c.severity = finding.Note
			c.do = "this gives it a network before the proxy runs; it is better to let it wait for the proxy"
		}
		b.add(c)
	}
}

// strictLevels are the pod security levels that refuse NET_ADMIN, which the container that writes the capture rules
// needs.
var strictLevels = []string{"baseline", "restricted"}

const enforceLabel = contract.PodSecurityLabel

// podSecurity finds namespaces whose pod security level refuses the injected pod.
func podSecurity(s subject, b *builder) {
	level := s.ns.labels[enforceLabel]
	refused := s.refusal != nil && s.refusal.Code == verdict.PodSecurity
	if !s.injected {
		refused = refused || s.captured() && slices.Contains(strictLevels, level) && slices.ContainsFunc(s.members(), hasNetAdmin)
	}
	if !refused {
		return
	}
	name := cmp.Or(s.Ref.Namespace, b.Namespace)
	b.addAt(s.ns.at, clue{code: "pod-security", field: path{"metadata", "labels", enforceLabel}, evidence: level,
		title:  fmt.Sprintf("namespace %s enforces %q, which refuses the pod with its capture", name, level),
		why:    "the container that writes the capture rules needs NET_ADMIN. The API server refuses the pod when it is created: a Deployment is accepted, and then has no pods; only an event of its ReplicaSet reports it",
		do:     "let the nodes capture (value node.enabled, annotation " + contract.Init + ": node), for which no pod needs a privilege; or let the namespace enforce privileged (and warn and audit the old level), or turn capture off (outrider.dev/capture: none)",
		run:    fmt.Sprintf("kubectl label namespace %s %s=privileged pod-security.kubernetes.io/warn=%s --overwrite", name, enforceLabel, level),
		source: "measured on a kubelet; Kubernetes Pod Security Standards"})
}

func hasNetAdmin(m member) bool {
	c := m.SecurityContext
	return c != nil && (c.Privileged != nil && *c.Privileged ||
		c.Capabilities != nil && slices.ContainsFunc(c.Capabilities.Add, func(x corev1.Capability) bool { return x == "NET_ADMIN" || x == "ALL" }))
}
