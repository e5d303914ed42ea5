package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLintReadsANamespace tests that "outrider lint -n" reads a namespace by kubectl and reports its findings, and
// that the API server accepts the fix.
func TestLintReadsANamespace(t *testing.T) {
	w := enterWorld(t)
	w.namespace(t, "linted", map[string]string{"istio-injection": "enabled"})
	apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: linted}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: app, image: x, command: [sh, -c, "sleep 5 && exec app"]}
`)
	until(t, "the Deployment has a pod", func() bool {
		return kubectl(t, "", "get", "pods", "--namespace=linted", "--output=name") != ""
	}, func() string { return kubectl(t, "", "get", "all", "--namespace=linted") })
	lint := func(status int, args ...string) (string, string) {
		t.Helper()
		return outrider.run(t, status, append([]string{"lint", "-n", "linted"}, args...)...)
	}
	found, _ := lint(1)
	if !strings.Contains(found, "Deployment linted/web  deployment/web") || !strings.Contains(found, "[fixed-sleep]") || !strings.Contains(found, "1 pod\n") {
		t.Errorf("found:\n%s\nwant the Deployment's sleep, once", found)
	}
	// A policy in the root namespace applies to this namespace too.
	w.deployed(t, "{}")
	apply(t, definition("security.istio.io", "RequestAuthentication", "requestauthentications"))
	t.Cleanup(w.undefine("requestauthentications.security.istio.io"))
	apply(t, "{apiVersion: security.istio.io/v1beta1, kind: RequestAuthentication, metadata: {name: deny, namespace: outrider-system}, spec: {}}")
	if found, _ := lint(1, "--only=policy-not-enforced"); !strings.Contains(found, "RequestAuthentication outrider-system/deny") {
		t.Errorf("found:\n%s\nwant the policy of the root namespace", found)
	}
	fixed, _ := lint(0, "--only=sleep", "--fix")
	apply(t, fixed)
	if after, _ := lint(0, "--only=sleep"); !strings.Contains(after, "no findings") {
		t.Errorf("after its own fix:\n%s", after)
	}
	// Run the command as a user without permissions.
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	must(t, err)
	must(t, os.WriteFile(kubeconfig, text, 0o600))
	kubectl(t, "", "config", "--kubeconfig="+kubeconfig, "set-credentials", "unknown", "--token=none")
	kubectl(t, "", "config", "--kubeconfig="+kubeconfig, "set-context", "--current", "--user=unknown")
	t.Setenv("KUBECONFIG", kubeconfig)
	if _, stderr := lint(2); !strings.Contains(stderr, "Unauthorized") && !strings.Contains(stderr, "logged in") {
		t.Errorf("an unknown user gets %q", stderr)
	}
}
