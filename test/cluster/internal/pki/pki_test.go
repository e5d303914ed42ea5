package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/test/cluster/internal/pki"
)

func TestIssuedCertificatesVerifyForWhatTheyAreFor(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue("server", pki.Identity{Name: "s", Hosts: []string{"kubernetes.default.svc", "10.96.0.1"}}); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "kubeconfig")
	if err := ca.IssueClient("client", config, "https://10.10.0.1:6443", pki.Identity{Name: "c", Groups: []string{"system:nodes"}}); err != nil {
		t.Fatal(err)
	}

	roots := x509.NewCertPool()
	pem, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatalf("reading ca.crt: %v", err)
	}
	tests := map[string]struct {
		file string
		opts x509.VerifyOptions
		ok   bool
	}{
		"a server by name":         {"server", x509.VerifyOptions{DNSName: "kubernetes.default.svc"}, true},
		"a server by address":      {"server", x509.VerifyOptions{DNSName: "10.96.0.1"}, true},
		"a server by another name": {"server", x509.VerifyOptions{DNSName: "example.org"}, false},
		"a client as a client":     {"client", x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true},
		"a client as a server":     {"client", x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, tt.file)
			pair, err := tls.LoadX509KeyPair(path+".crt", path+".key")
			if err != nil {
				t.Fatal(err)
			}
			tt.opts.Roots = roots
			if _, err := pair.Leaf.Verify(tt.opts); (err == nil) != tt.ok {
				t.Errorf("Verify: %v, want success: %v", err, tt.ok)
			}
		})
	}
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`server: "https://10.10.0.1:6443"`, `user: "c"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the kubeconfig lacks %s:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "%!") {
		t.Errorf("the kubeconfig has a broken format:\n%s", text)
	}
}
