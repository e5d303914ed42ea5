package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/client-go/tools/clientcmd/api"

	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/internal/core/controlplane"
)

// A certificate is renewed only with a token, which is valid only while its pod exists. If the API server cannot
// review the token because it is unavailable, the answer requests the agent to retry. The test has a real API server
// and the agent's client.
func certificatesEndWithTheirPod(t *testing.T) {
	w := enterWorld(t)
	w.namespace(t, "renewals", nil)
	token, _ := w.podToken(t, "renewals", "one")
	next := w.token(t, "renewals", "default", nil, nil)
	var j journal
	l := newGap(t, w)
	cluster := w.connect(t, &j, func(c *api.Cluster, a *api.AuthInfo) { outriderd(c, a); l.through(c, a) })
	state := t.TempDir()
	addresses := make(chan controlplane.Addresses, 1)
	running(t, func(ctx context.Context) error {
		return controlplane.Run(ctx, controlplane.Options{
			Cluster: cluster, State: state, Names: []string{"127.0.0.1"}, Log: j.log(), Life: time.Hour,
			Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", WebhookConfiguration: "off",
			Ready: func(a controlplane.Addresses) { addresses <- a },
		})
	})
	client := identity.Client{RootFile: filepath.Join(state, "ca", "root-cert.pem"), TokenFile: filepath.Join(t.TempDir(), "token")}
	select {
	case a := <-addresses:
		client.Address = a.Discovery
	case <-time.After(patience):
		t.Fatalf("the control plane does not serve:\n%s", j.String())
	}
	key, csr := newCSR(t)
	request := func(token string, life time.Duration, own *tls.Certificate) (*x509.Certificate, *identity.Fault) {
		t.Helper()
		must(t, os.WriteFile(client.TokenFile, []byte(token), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		chain, err := client.CreateCertificate(ctx, identity.Call{CSR: csr, Life: life, Certificate: own})
		var f *identity.Fault
		if errors.As(err, &f) {
			return nil, f
		}
		must(t, err)
		return chain[0], nil
	}
	var own *tls.Certificate
	until(t, "the first certificate", func() bool { // outriderd opens the port first, and serves after it has read the cluster
		leaf, f := request(token, 90*24*time.Hour, nil)
		if f != nil {
			return false
		}
		if life := time.Until(leaf.NotAfter); life > 24*time.Hour {
			t.Errorf("90 days are requested, and %s are given: at most a day", life)
		}
		own = &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}
		return true
	}, j.String)
	if _, f := request(token, 0, own); f != nil {
		t.Errorf("with its certificate and token: %v", f)
	}
	for what, token := range map[string]string{"its certificate alone": "", "a token for another audience": next} {
		if _, f := request(token, 0, own); f == nil || f.Kind != identity.Rejected {
			t.Errorf("with %s: %v; want a refusal", what, f)
		}
	}
	l.cut()
	if _, f := request(token, 0, own); f == nil || f.Kind != identity.Unreachable {
		t.Errorf("without the API server: %v; want to try again", f)
	}
	l.mend(t)
	until(t, "a renewal when the API server is back", func() bool { _, f := request(token, 0, own); return f == nil }, j.String)

	must(t, w.CoreV1().Pods("renewals").Delete(t.Context(), "one", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	// The API server caches a token review for 10 s, so the token stays valid that long. Pause between the requests, as
	// an agent does.
	for end := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) {
		_, f := request(token, 0, own)
		if f != nil && f.Kind == identity.Rejected {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not refused within %v after the pod is gone: %v\n%s", patience, f, j.String())
		}
	}
}
