package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"outrider.dev/internal/core/controlplane/ca"
)

// The store contains the roots of both the Secret and the ConfigMap, and notices changes of both.
func TestServingSecret(t *testing.T) {
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "mesh", Name: name} }
	secret := &corev1.Secret{ObjectMeta: at("outriderd-tls"), Data: map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k"), "ca.crt": []byte("old root\n")}}
	roots := &corev1.ConfigMap{ObjectMeta: at("istio-ca-root-cert"), Data: map[string]string{"root-cert.pem": "new root\n"}}
	core := fake.NewClientset(secret, roots)
	s := Using(core).ServingSecret("mesh", "outriderd-tls", "istio-ca-root-cert")
	read := func() ca.Contents {
		t.Helper()
		c, err := s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := read()
	if got := string(c.Files["ca.crt"]); got != "new root\n\nold root" || string(c.Files["tls.key"]) != "k" || c.Own {
		t.Errorf("Read: %q, %v", got, c.Own)
	}
	if err := s.Update(t.Context(), c); err == nil {
		t.Error("the Secret of another was written")
	}
	hints, watching := make(chan struct{}, 100), watches(core, "configmaps", "mesh")
	defer s.Watch(func() { hints <- struct{}{} })()
	<-hints
	<-hints // one for the first list of each object
	<-watching
	roots.Data["root-cert.pem"], roots.ResourceVersion = "newer root", "2"
	if _, err := core.CoreV1().ConfigMaps("mesh").Update(t.Context(), roots, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-hints
	if next := read(); !strings.HasPrefix(string(next.Files["ca.crt"]), "newer root") || next.Version == c.Version {
		t.Errorf("after the change: %q, version %q", next.Files["ca.crt"], next.Version)
	}
	alone, err := Using(core).ServingSecret("mesh", "outriderd-tls", "").Read(t.Context())
	if err != nil || string(alone.Files["ca.crt"]) != "old root\n" {
		t.Errorf("without a ConfigMap: %q, %v", alone.Files["ca.crt"], err)
	}
	empty := &corev1.ConfigMap{ObjectMeta: at("empty")}
	for want, name := range map[string]string{
		"reading the ConfigMap mesh/absent":                                             "absent",
		"the ConfigMap mesh/empty has no root-cert.pem with the roots of the authority": "empty",
	} {
		if _, err := Using(fake.NewClientset(secret, empty)).ServingSecret("mesh", "outriderd-tls", name).Read(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	missing, err := Using(fake.NewClientset(roots)).ServingSecret("mesh", "outriderd-tls", "istio-ca-root-cert").Read(t.Context())
	if err != nil || missing.Own || len(missing.Files) > 0 {
		t.Errorf("without the Secret: %v, %v", missing, err)
	}
}
