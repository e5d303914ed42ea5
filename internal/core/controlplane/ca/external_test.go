package ca

import (
	"crypto/rand"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/base/wire"
)

const planeHost = "outriderd.outrider-system.svc"

// servedBy returns the files of a control plane whose certificate was signed by another authority.
func servedBy(t *testing.T, root *signer, at time.Time, change func(*x509.Certificate)) map[string][]byte {
	t.Helper()
	key := ecKey(t)
	form := &x509.Certificate{SerialNumber: must(newSerial()), NotBefore: at.Add(-time.Hour), NotAfter: at.Add(60 * time.Hour), DNSNames: []string{"outriderd", planeHost},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if change != nil {
		change(form)
	}
	leaf := must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, form, root.cert, key.Public(), root.key))))
	return map[string][]byte{"tls.crt": wire.MarshalCertificates(leaf), "tls.key": must(wire.MarshalKey(key)), "ca.crt": wire.MarshalCertificates(root.cert)}
}

// workload returns a workload's certificate that another authority has signed.
func workload(t *testing.T, by *signer, at time.Time, life time.Duration) []*x509.Certificate {
	t.Helper()
	form := &x509.Certificate{SerialNumber: must(newSerial()), NotBefore: at, NotAfter: at.Add(life), URIs: []*url.URL{shop.URL()}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	return []*x509.Certificate{must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, form, by.cert, ecKey(t).Public(), by.key))))}
}

func (o *overlapping) external() *Authority {
	o.t.Helper()
	return o.start(func(a *AuthorityOptions) {
		a.StoreTokenKey, a.Record, a.RootSpread, a.ServesOnly = false, o.record, time.Hour, []string{"outriderd", planeHost}
	})
}

// With an external authority the control plane signs nothing, serves the certificate in the store, and
// verifies clients by the external authority's root.
func TestExternalAuthority(t *testing.T) {
	begin := time.Now()
	root := rootAt(t, begin, rootLife)
	files := servedBy(t, root, begin, nil)
	files["ca.crt"] = slices.Concat(files["ca.crt"], []byte("\n"), files["ca.crt"])
	o := newOverlapping(t, files)
	a := o.external()
	if roots := a.Roots(); len(roots) != 1 {
		t.Errorf("%d roots; want each once", len(roots))
	}
	if _, err := a.Sign(o.key.Public(), shop, 0); err == nil || !strings.Contains(err.Error(), "signs no certificates") {
		t.Errorf("Sign: %v", err)
	}
	_, err := (&Service{Authority: a}).CreateCertificate(t.Context(), wire.CertificateRequest{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "global.caAddress") {
		t.Errorf("CreateCertificate: %v", err)
	}
	shown := must(must(a.NewServing(Identity{}, nil, 0)).Certificate())
	if got := must(x509.ParseCertificate(shown.Certificate[0])); got.VerifyHostname(planeHost) != nil || len(shown.Certificate) != 1 {
		t.Errorf("shown: %v, %d certificates", got.DNSNames, len(shown.Certificate))
	}
	if id, err := a.Identify(workload(t, root, o.time, time.Hour)); err != nil || id != shop {
		t.Errorf("Identify: %v, %v", id, err)
	}
	if _, err := a.Identify(workload(t, rootAt(t, begin, rootLife), o.time, time.Hour)); err == nil {
		t.Error("a certificate of another root is accepted")
	}
	if c := must(o.store.Read(t.Context())); c.Files["ca-cert.pem"] != nil {
		t.Error("an authority was made in the store")
	}
}

// The external authority replaces its root at once. Certificates of the old root are accepted until they
// expire, and the old serving certificate is used until the proxies have the new root.
func TestExternalAuthorityReplacesItsRoot(t *testing.T) {
	begin := time.Now()
	old, next := rootAt(t, begin, rootLife), rootAt(t, begin, rootLife)
	o := newOverlapping(t, servedBy(t, old, begin, nil))
	a := o.external()
	serving := must(a.NewServing(Identity{}, nil, 0))
	client := workload(t, old, o.time, 24*time.Hour)
	advance := func(d time.Duration) {
		o.time = o.time.Add(d)
		must(a.Advance(t.Context()))
	}
	o.store.set(Contents{Files: servedBy(t, next, begin, nil), Version: "next"})
	advance(0)
	issuer := func() *x509.Certificate {
		return must(x509.ParseCertificate(must(serving.Certificate()).Certificate[0]))
	}
	if err := issuer().CheckSignatureFrom(old.cert); err != nil {
		t.Errorf("the new certificate is shown at once: %v", err)
	}
	for _, root := range []*signer{old, next} {
		if !slices.ContainsFunc(a.Roots(), root.cert.Equal) {
			t.Errorf("root %v is not published", root.cert.Subject)
		}
	}
	if _, err := a.Identify(workload(t, next, o.time, time.Hour)); err != nil {
		t.Errorf("a certificate of the new root: %v", err)
	}
	advance(time.Hour)
	if err := issuer().CheckSignatureFrom(next.cert); err != nil {
		t.Errorf("an hour later the old certificate is shown: %v", err)
	}
	advance(22 * time.Hour)
	if _, err := a.Identify(client); err != nil {
		t.Errorf("a certificate of the old root, before its end: %v", err)
	}
	advance(3 * time.Hour)
	if slices.ContainsFunc(a.Roots(), old.cert.Equal) {
		t.Error("the old root is trusted after all of its certificates have ended")
	}
}

// If files cannot be used, the error contains the file and the valid content.
func TestExternalAuthorityWithWrongFiles(t *testing.T) {
	at := time.Now()
	root := rootAt(t, at, rootLife)
	without := func(name string) map[string][]byte {
		files := servedBy(t, root, at, nil)
		delete(files, name)
		return files
	}
	self := servedBy(t, root, at, nil)
	self["ca.crt"] = self["tls.crt"]
	for want, files := range map[string]map[string][]byte{
		"memoryStore/tls.crt: there is no such file": {},
		"memoryStore/ca.crt: there is no such file":  without("ca.crt"),
		"memoryStore/tls.key: there is no such file": without("tls.key"),
		"that of an authority":                       certManager(t, root, "between", at, time.Hour),
		"lacks the DNS names " + planeHost:           servedBy(t, root, at, func(c *x509.Certificate) { c.DNSNames = []string{"outriderd"} }),
		"does not lead to a root of the mesh":        servedBy(t, root, at, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
		"is a root itself":                           self,
	} {
		store := newMemoryStore()
		store.set(Contents{Files: files, Own: true})
		_, err := NewAuthority(t.Context(), AuthorityOptions{Store: store, ServesOnly: []string{"outriderd", planeHost}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
