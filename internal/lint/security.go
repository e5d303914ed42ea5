package lint

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/contract"
	"outrider.dev/internal/lint/finding"
	"outrider.dev/internal/pod/inject"
	"outrider.dev/startup"
)

// user is the one that a container runs as, if the pod sets it, and the field.
func (s *subject) user(m member) (*int64, path) {
	if c := m.SecurityContext; c != nil && c.RunAsUser != nil {
		return c.RunAsUser, m.field.plus("securityContext", "runAsUser")
	}
	if c := s.Pod.Spec.SecurityContext; c != nil && c.RunAsUser != nil {
		return c.RunAsUser, path{"spec", "securityContext", "runAsUser"}
	}
	return nil, nil
}

// group is the same for its group.
func (s *subject) group(m member) (*int64, path) {
	if c := m.SecurityContext; c != nil && c.RunAsGroup != nil {
		return c.RunAsGroup, m.field.plus("securityContext", "runAsGroup")
	}
	if c := s.Pod.Spec.SecurityContext; c != nil && c.RunAsGroup != nil {
		return c.RunAsGroup, path{"spec", "securityContext", "runAsGroup"}
	}
	return nil, nil
}

// proxyUser: the connections of a process with the proxy's user are not captured.
func proxyUser(s subject, b *builder) {
	if !s.captured() {
		return
	}
	of, _ := meshOf(s.proxy)
	for _, m := range s.members() {
		if isMesh(m.Name) {
			continue
		}
		for _, identity := range []struct {
			what string
			of   func(member) (*int64, path)
		}{{"user", s.user}, {"group", s.group}} {
			id, field := identity.of(m)
			if id == nil || *id != of.uid {
				continue
			}
			c := clue{code: "proxy-uid", title: fmt.Sprintf("%s runs as %s %d, which is the proxy's", m.Name, identity.what, of.uid), field: field, evidence: fmt.Sprint(of.uid),
				why:    "its connections count as the proxy's own: none is captured, so it has no mutual TLS, no policy and no routing",
				do:     fmt.Sprintf("run it as a different %s", identity.what),
				source: "istio IST0144; our own capture leaves a process alone by its user or its group"}
			if m.kind == startup.Init { // how people give an init container a network
				c.severity = finding.Note
				c.do = "this gives it a network before the proxy runs; it is better to let it wait for the proxy"
			}
			b.add(c)
			break
		}
	}
}

// levels of pod security that refuse NET_ADMIN, which the container that writes the
// capture has.
var strictLevels = []string{"baseline", "restricted"}

const enforceLabel = contract.PodSecurityLabel

// podSecurity: the namespace will refuse the injected pod.
func podSecurity(s subject, b *builder) {
	level := s.ns.labels[enforceLabel]
	refused := s.refusal != nil && s.refusal.Code == inject.PodSecurity
	if !s.injected {
		refused = s.captured() && slices.Contains(strictLevels, level) && slices.ContainsFunc(s.members(), hasNetAdmin)
	}
	if !refused {
		return
	}
	name := s.Ref.Namespace
	if name == "" {
		name = b.Namespace
	}
	b.addAt(s.ns.source, s.ns.root, clue{code: "pod-security", field: path{"metadata", "labels", enforceLabel}, evidence: level,
		title:  fmt.Sprintf("namespace %s enforces %q, which refuses the pod with its capture", name, level),
		why:    "the container that writes the capture rules needs NET_ADMIN. The API server refuses the pod when it is created: a Deployment is accepted, and then has no pods; only an event of its ReplicaSet reports it",
		do:     "let the namespace enforce privileged (and warn and audit the old level), or turn capture off (outrider.dev/capture: none)",
		run:    fmt.Sprintf("kubectl label namespace %s %s=privileged pod-security.kubernetes.io/warn=%s --overwrite", name, enforceLabel, level),
		source: "measured on a kubelet; Kubernetes Pod Security Standards"})
}

func hasNetAdmin(m member) bool {
	c := m.SecurityContext
	return c != nil && (c.Privileged != nil && *c.Privileged ||
		c.Capabilities != nil && slices.ContainsFunc(c.Capabilities.Add, func(x corev1.Capability) bool { return x == "NET_ADMIN" || x == "ALL" }))
}
