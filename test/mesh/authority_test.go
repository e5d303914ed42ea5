package mesh

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/secretserver"
)

// certificate returns a new key for a workload, and its certificate chain from the authority, in PEM.
func certificate(t testing.TB, authority *ca.Authority, account string) (chain, private string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := authority.Sign(&key.PublicKey, ca.Identity{TrustDomain: authority.TrustDomain(), Namespace: namespace, ServiceAccount: account}, 0)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return leaf.Chain[0], string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// serveSecrets serves a workload's certificate and the roots to an Envoy over a socket, as the agent does. An Envoy
// that reads them from files takes two inotify instances. Its user has 128 of them, so the 65th Envoy would abort.
func serveSecrets(t testing.TB, authority, trusted *ca.Authority, socket, account string) {
	t.Helper()
	chain, private := certificate(t, authority, account)
	s := secretserver.Serve(t, socket, nil)
	if err := os.Chown(socket, proxyUser, proxyUser); err != nil {
		t.Fatal(err)
	}
	s.Set(contract.WorkloadSecret, identity.CertificateSecret([]byte(chain), []byte(private)))
	s.Set(contract.RootsSecret, identity.RootsSecret(trusted.RootsPEM()))
}

// issue writes a workload's certificate and the roots to dir, as files of secrets that Envoy reads.
func issue(t testing.TB, authority *ca.Authority, dir, account string) {
	t.Helper()
	chain, private := certificate(t, authority, account)
	inline := func(pem string) any { return map[string]any{"inline_string": pem} }
	secrets := map[string]map[string]any{
		contract.WorkloadSecret: {"tls_certificate": map[string]any{"certificate_chain": inline(chain), "private_key": inline(private)}},
		contract.RootsSecret:    {"validation_context": map[string]any{"trusted_ca": inline(string(authority.RootsPEM()))}},
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, secret := range secrets {
		secret["@type"], secret["name"] = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", name
		raw, err := json.Marshal(map[string]any{"resources": []any{secret}})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".json"), raw, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
