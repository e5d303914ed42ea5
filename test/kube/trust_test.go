package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/kube"
	"outrider.dev/test/chart"
	"outrider.dev/test/roots"
	"outrider.dev/test/tier"
)

// bundle returns the content of the ClusterTrustBundle; empty if there is none.
func bundle(t *testing.T) string {
	t.Helper()
	return kubectl(t, "", "get", "clustertrustbundle", contract.TrustBundle, "--ignore-not-found", "--output=jsonpath={.spec.trustBundle}")
}

func withoutBundle(t *testing.T) {
	t.Helper()
	kubectl(t, "", "delete", "clustertrustbundle", contract.TrustBundle, "--ignore-not-found")
}

// The role for the bundle grants exactly the permissions that are needed: with all of them the bundle is written and
// usable, and without one of them it is not. The API server is real; the test replaces the versions of the kubelets
// by 1.37.
func TestTheTrustRoleIsEnoughAndNotMore(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	w.namespace(t, "roles", nil)
	rules := w.roles(t, "outriderd-trust")
	if len(rules) != 5 {
		t.Fatalf("%d rules: %v", len(rules), rules)
	}
	account := func(i int) string { return fmt.Sprintf("trust-%d", i) }
	try := func(t *testing.T, account string) (*attempt, *kube.TrustBundle) {
		withoutBundle(t)
		a := &attempt{}
		a.cluster = w.connect(t, &a.journal, as("roles", account))
		b := a.cluster.TrustBundle(roots.New(pem(t)), []kube.TrustAPI{{Version: "v1"}, {Version: "v1beta1", Kubelet: 33}})
		running(t, b.Run)
		return a, b
	}
	w.may(t, "trust-all", rules)
	t.Run("all of them", func(t *testing.T) {
		w.allowed(t, "roles", "trust-all", accessOf(rules[len(rules)-1]))
		a, b := try(t, "trust-all")
		until(t, "pods may mount it", func() bool { usable, _ := b.Usable(); return usable && bundle(t) == pem(t) }, a.text)
		kubectl(t, "", "delete", "clustertrustbundle", contract.TrustBundle)
		until(t, "it is written again", func() bool { return bundle(t) == pem(t) }, a.text)
		if text := a.text(); strings.Contains(text, "WARN") {
			t.Errorf("with every permission:\n%s", text)
		}
	})
	for i, rule := range rules {
		w.may(t, account(i), slices.Concat(rules[:i], rules[i+1:]))
		want := fmt.Sprintf("cannot %s resource %q in API group %q", rule.Verbs[0], rule.Resources[0], rule.APIGroups[0])
		if rule.Verbs[0] == "attest" {
			want = "user not permitted to attest for signerName \"" + contract.TrustSigner + "\""
		}
		t.Run(fmt.Sprint(rule.Verbs[0], " ", rule.Resources[0]), func(t *testing.T) {
			w.allowed(t, "roles", account(i), accessOf(rules[(i+1)%len(rules)]))
			a, b := try(t, account(i))
			until(t, want, func() bool { return strings.Contains(strings.ReplaceAll(a.text(), `\"`, `"`), want) }, a.text)
			if usable, _ := b.Usable(); usable && rule.Verbs[0] != "watch" { // without watch, outriderd still reads lists
				t.Error("pods are said to be able to mount it")
			}
			if text := strings.ReplaceAll(a.text(), want, ""); strings.Contains(text, "cannot") {
				t.Errorf("something else is missing too:\n%s", text)
			}
		})
	}
}

// If the cluster has an older kubelet, which cannot mount the bundle, pods use the ConfigMap.
func TestKubeletsAreOfTheirVersion(t *testing.T) {
	w := enterWorld(t)
	withoutBundle(t)
	var j journal
	b := w.connect(t, &j, nil).TrustBundle(roots.New(pem(t)), []kube.TrustAPI{{Version: "v1beta1", Kubelet: 99}})
	running(t, b.Run)
	until(t, "the bundle is written", func() bool { return bundle(t) == pem(t) }, j.String)
	if usable, _ := b.Usable(); usable {
		t.Error("a kubelet of 1.34 is said to be one of 1.99")
	}
}

// Injected pods mount the bundle. So a pod in a new namespace starts although the namespace has no ConfigMap yet, and
// a running pod receives the next root when the root is rotated.
func TestPodsMountTheTrustBundle(t *testing.T) {
	w := enterWorld(t)
	withoutBundle(t)
	w.withoutAuthority(t)
	manifest, err := chart.Manifest("pilot: {replicaCount: 1}\nauthority: {trustBundle: 'on', rootSpread: 1h}")
	must(t, err)
	apply(t, manifest)
	log := func() string {
		return kubectl(t, "", "logs", "--namespace=outrider-system", "deployment/outriderd")
	}
	kubectl(t, "", "rollout", "status", "--namespace=outrider-system", "deployment/outriderd", "--timeout="+patience.String())
	t.Cleanup(func() {
		w.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(context.Background(), "outrider-injector", metav1.DeleteOptions{})
	})
	until(t, "pods may mount it", func() bool { return strings.Contains(log(), `"usable":true`) }, log)
	kubectl(t, "", "wait", "--for=jsonpath={.webhooks[0].clientConfig.caBundle}", "--timeout="+patience.String(), "mutatingwebhookconfiguration/outrider-injector")

	w.namespace(t, "trusting", map[string]string{"istio-injection": "enabled"})
	apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: app, namespace: trusting}, spec: {containers: [{name: app, image: "test.outrider.dev/base:1", command: [sleep, 1h]}]}}`)
	app, err := w.CoreV1().Pods("trusting").Get(t.Context(), "app", metav1.GetOptions{})
	must(t, err)
	i := slices.IndexFunc(app.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == contract.RootVolume })
	if i < 0 || app.Spec.Volumes[i].Projected == nil || app.Spec.Volumes[i].Projected.Sources[0].ClusterTrustBundle == nil {
		t.Fatalf("the volume with the roots: %+v\n%s", app.Spec.Volumes, log())
	}
	volume, err := json.Marshal(app.Spec.Volumes[i])
	must(t, err)
	// This cluster lacks the proxy's image, so another container reads the same volume.
	apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: reader, namespace: trusting, annotations: {outrider.dev/inject: "false"}, labels: {sidecar.istio.io/inject: "false"}},
		spec: {volumes: [%s], containers: [{name: reader, image: "test.outrider.dev/base:1", command: [sleep, 1h], volumeMounts: [{name: %s, mountPath: %s}]}]}}`,
		volume, contract.RootVolume, contract.RootDir))
	kubectl(t, "", "wait", "--for=condition=Ready", "--timeout="+patience.String(), "pod/reader", "--namespace=trusting")
	roots := func() int {
		return strings.Count(kubectl(t, "", "exec", "--namespace=trusting", "reader", "--", "cat", contract.RootFile), "BEGIN CERTIFICATE")
	}
	if n := roots(); n != 1 {
		t.Errorf("%d roots in the pod; want one", n)
	}
	kubectl(t, "", "exec", "--namespace=outrider-system", "deployment/outriderd", "--", "/usr/local/bin/outriderd", "rotate")
	until(t, "the bundle has both roots", func() bool { return strings.Count(bundle(t), "BEGIN CERTIFICATE") == 2 }, log)
	if tier.Nightly() { // takes up to two minutes, until the kubelet refreshes the volume
		until(t, "the running pod has both roots", func() bool { return roots() == 2 }, func() string { return bundle(t) + log() })
	} else {
		t.Log("not waited for the kubelet: OUTRIDER_NIGHTLY=1 sees both roots in the running pod")
	}

	kubectl(t, "", "delete", "deployment", "outriderd", "--namespace=outrider-system", "--cascade=foreground")
}
