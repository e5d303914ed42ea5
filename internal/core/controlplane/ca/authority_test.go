package ca

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/wire"
)

var shop = Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "app"}

func authority(t testing.TB, dir string) *Authority {
	t.Helper()
	a, err := NewAuthority(t.Context(), AuthorityOptions{Store: Directory(dir)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, a *Authority, id Identity, life time.Duration) *Certificate {
	t.Helper()
	c, err := a.Sign(ecKey(t).Public(), id, life)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// certificates parses a chain as a client would, and checks that each entry has one certificate.
func certificates(t testing.TB, chain []string) []*x509.Certificate {
	t.Helper()
	out, err := wire.ParseCertificates([]byte(strings.Join(chain, "")))
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != len(chain) {
		t.Fatalf("%d certificates in %d entries; Istio expects one in each entry", len(out), len(chain))
	}
	return out
}

func TestARootIsMadeOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	var first *Authority
	var wg sync.WaitGroup
	all := make([]*Authority, 8)
	for i := range all {
		wg.Go(func() { all[i], _ = NewAuthority(t.Context(), AuthorityOptions{Store: Directory(dir)}) })
	}
	wg.Wait()
	for _, a := range append(all, authority(t, dir)) {
		if a == nil {
			t.Fatal("one of several that started at once failed")
		}
		if first == nil {
			first = a
		}
		if !a.Roots()[0].Equal(first.Roots()[0]) {
			t.Error("two roots were made")
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		got[f.Name()] = info.Mode().String()
	}
	want := map[string]string{"ca-cert.pem": "-rw-------", "ca-key.pem": "-rw-------", "root-cert.pem": "-rw-------"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	root := first.Roots()[0]
	if key, ok := root.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("the root's key is %T, want ECDSA P-256", root.PublicKey)
	}
}

func TestAStartThatWasCutShortIsFinished(t *testing.T) {
	for _, lost := range [][]string{{"ca-cert.pem", "root-cert.pem"}, {"root-cert.pem"}} {
		t.Run("without "+strings.Join(lost, " and "), func(t *testing.T) {
			dir := t.TempDir()
			before := authority(t, dir)
			for _, f := range lost {
				if err := os.Remove(filepath.Join(dir, f)); err != nil {
					t.Fatal(err)
				}
			}
			if after := authority(t, dir); !after.Roots()[0].PublicKey.(*ecdsa.PublicKey).Equal(before.Roots()[0].PublicKey) {
				t.Error("the key was made again")
			}
		})
	}
}

func TestACertificateNamesTheIdentityAlone(t *testing.T) {
	a := authority(t, t.TempDir())
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"ECDSA": ecKey(t), "RSA": rsaKey} {
		t.Run(name, func(t *testing.T) {
			c, err := a.Sign(key.Public(), shop, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			chain := certificates(t, c.Chain)
			leaf := chain[0]
			if id, err := IdentityOf(leaf); err != nil || id != shop {
				t.Errorf("it names %v, %v", id, err)
			}
			if leaf.IsCA || len(leaf.DNSNames) > 0 || !chain[len(chain)-1].Equal(a.Roots()[0]) {
				t.Errorf("CA %v, names %v, last is %s", leaf.IsCA, leaf.DNSNames, chain[len(chain)-1].Subject)
			}
			if id, err := a.Identify(chain); err != nil || id != shop {
				t.Errorf("Identify = %v, %v", id, err)
			}
		})
	}
}

func TestHowLongACertificateLives(t *testing.T) {
	a := must(NewAuthority(t.Context(), AuthorityOptions{Store: Directory(t.TempDir()), Life: 2 * time.Hour, MaxLife: 10 * time.Hour}))
	files := map[string][]byte{}
	if err := addRoot(files, "cluster.local", time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	dir := Directory(t.TempDir())
	if err := dir.Update(t.Context(), Contents{Files: files, Version: contentsOf(nil).Version}); err != nil {
		t.Fatal(err)
	}
	short := authority(t, string(dir))
	tests := map[string]struct {
		by              *Authority
		requested, want time.Duration
	}{
		"as requested":                        {a, 3 * time.Hour, 3 * time.Hour},
		"not requested":                       {a, 0, 2 * time.Hour},
		"a negative life":                     {a, -time.Hour, 2 * time.Hour},
		"more than the maximum":               {a, 100 * time.Hour, 10 * time.Hour},
		"more than a time can represent":      {a, 1<<63 - 1, 10 * time.Hour},
		"longer than the authority's own one": {short, 24 * time.Hour, time.Hour},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			leaf := sign(t, tt.by, shop, tt.requested).Leaf
			if got := time.Until(leaf.NotAfter); got > tt.want || got < tt.want-time.Minute {
				t.Errorf("it lives for %s, want %s", got, tt.want)
			}
			if got := time.Since(leaf.NotBefore); got < clockSkew || got > clockSkew+time.Minute {
				t.Errorf("it began %s ago, want %s", got, clockSkew)
			}
		})
	}
}

func TestFilesThatDoNotBelongTogetherAreRefused(t *testing.T) {
	other := t.TempDir()
	authority(t, other)
	leaf := sign(t, authority(t, other), shop, 0)
	copyOf := func(name string) []byte {
		raw, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	tests := map[string]struct {
		file    string
		content []byte // nil: the file is removed
		want    string
	}{
		"another's key":               {"ca-key.pem", copyOf("ca-key.pem"), "key of another certificate"},
		"another's root":              {"root-cert.pem", copyOf("root-cert.pem"), "does not lead to a root"},
		"no key":                      {"ca-key.pem", nil, "ca-key.pem"},
		"no PEM for a key":            {"ca-key.pem", []byte("x"), "ca-key.pem: no key in it"},
		"a certificate for a key":     {"ca-key.pem", copyOf("ca-cert.pem"), "ca-key.pem: a PEM block"},
		"a key among the roots":       {"root-cert.pem", copyOf("ca-key.pem"), "root-cert.pem: a PEM block"},
		"empty roots":                 {"root-cert.pem", []byte{}, "root-cert.pem: no certificate"},
		"a certificate that is cut":   {"ca-cert.pem", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "ca-cert.pem: certificate 1"},
		"a chain that is none":        {"cert-chain.pem", []byte("x"), "cert-chain.pem"},
		"a workload's for the signer": {"ca-cert.pem", []byte(leaf.Chain[0]), "key of another certificate"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := authority(t, dir)
			path := filepath.Join(dir, tt.file)
			if err := os.Remove(path); err != nil && tt.file != "cert-chain.pem" {
				t.Fatal(err)
			}
			if tt.content != nil {
				if err := os.WriteFile(path, tt.content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := NewAuthority(t.Context(), AuthorityOptions{Store: Directory(dir)})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("NewAuthority = %v, want an error with %q", err, tt.want)
			}
			if err := a.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Reload = %v, want an error with %q", err, tt.want)
			}
			sign(t, a, shop, 0) // it still signs, with the previous files
		})
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for want, o := range map[string]AuthorityOptions{
		"Store":       {},
		"TrustDomain": {Store: Directory("x"), TrustDomain: "Upper Case"},
		"MaxLife":     {Store: Directory("x"), MaxLife: time.Millisecond},
	} {
		if _, err := NewAuthority(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewAuthority(%+v) = %v, want it to name %s", o, err, want)
		}
	}
}

// move copies files of one authority over those of another, as in a rotation.
func move(t testing.TB, from, to string, names ...string) {
	t.Helper()
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := replace(filepath.Join(to, name), raw); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRootsAreExchangedWithoutARestart(t *testing.T) {
	dir, newer := t.TempDir(), t.TempDir()
	a, b := authority(t, dir), authority(t, newer)
	old := sign(t, a, shop, 0)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { a.Run(ctx) })
	until := func(what string, right func() bool) {
		t.Helper()
		for end := time.After(time.Minute); !right(); {
			changed := a.Changed()
			if right() {
				return
			}
			select {
			case <-changed:
			case <-end:
				t.Fatalf("not within a minute: %s", what)
			}
		}
	}
	// Reload, because Run may not have begun to watch yet.
	both := append(a.RootsPEM(), b.RootsPEM()...)
	if err := replace(filepath.Join(dir, "root-cert.pem"), both); err != nil {
		t.Fatal(err)
	}
	if err := a.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	until("two roots", func() bool { return len(a.Roots()) == 2 })
	chain := certificates(t, sign(t, a, shop, 0).Chain)
	if len(chain) != 3 || !chain[1].Equal(b.Roots()[0]) || !chain[2].Equal(a.Roots()[0]) {
		t.Errorf("a chain of %d, want the leaf, the new root, and its own root last", len(chain))
	}

	if err := replace(filepath.Join(dir, "ca-key.pem"), must(os.ReadFile(filepath.Join(newer, "ca-key.pem")))); err != nil {
		t.Fatal(err)
	}
	move(t, newer, dir, "ca-cert.pem")
	until("the new signer", func() bool { return sign(t, a, shop, 0).Leaf.CheckSignatureFrom(b.Roots()[0]) == nil })
	if _, err := a.Identify(certificates(t, old.Chain)); err != nil {
		t.Errorf("a certificate of the old root, while both are trusted: %v", err)
	}

	move(t, newer, dir, "root-cert.pem")
	until("one root", func() bool { return len(a.Roots()) == 1 })
	if _, err := a.Identify(certificates(t, old.Chain)); err == nil || !strings.Contains(err.Error(), "not of this mesh") {
		t.Errorf("a certificate of a root that is gone: %v", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestAnIntermediateOfCertManagerSigns(t *testing.T) {
	root := authority(t, t.TempDir())
	s := root.loaded()
	key := ecKey(t)
	form := &x509.Certificate{SerialNumber: must(newSerial()), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	form.Subject.CommonName = "between"
	der := must(x509.CreateCertificate(rand.Reader, form, s.cert, key.Public(), s.key))
	between := must(x509.ParseCertificate(der))
	dir := t.TempDir()
	for name, content := range map[string][]byte{"tls.crt": wire.MarshalCertificates(between), "tls.key": must(wire.MarshalKey(key)), "ca.crt": root.RootsPEM()} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := sign(t, authority(t, dir), shop, 0)
	chain := certificates(t, c.Chain)
	if len(chain) != 3 || !chain[1].Equal(between) || !chain[2].Equal(s.cert) || len(c.served) != 2 {
		t.Errorf("chain of %d, served %d: want leaf, intermediate, root, and the first two served", len(chain), len(c.served))
	}
	if id, err := root.Identify(chain); err != nil || id != shop {
		t.Errorf("the root's Identify = %v, %v", id, err)
	}
}

func TestCertificatesOfOtherMeshes(t *testing.T) {
	a := authority(t, t.TempDir())
	dir := t.TempDir()
	move(t, a.o.Store.String(), dir, "ca-cert.pem", "ca-key.pem", "root-cert.pem")
	elsewhere, err := NewAuthority(t.Context(), AuthorityOptions{Store: Directory(dir), TrustDomain: "other.example"})
	if err != nil {
		t.Fatal(err)
	}
	other := shop
	other.TrustDomain = "other.example"
	if _, err := a.Sign(ecKey(t).Public(), other, 0); err == nil || !strings.Contains(err.Error(), "other.example") {
		t.Errorf("signing for another trust domain: %v", err)
	}
	noName := must(a.Sign(ecKey(t).Public(), shop, 0))
	noName.Leaf.URIs = nil
	twoNames := must(a.Sign(ecKey(t).Public(), shop, 0))
	twoNames.Leaf.URIs = append(twoNames.Leaf.URIs, twoNames.Leaf.URIs...)
	tests := map[string]struct {
		chain []*x509.Certificate
		want  string
	}{
		"no certificate":       {nil, "no certificate"},
		"another root":         {certificates(t, sign(t, authority(t, t.TempDir()), shop, 0).Chain), "not of this mesh"},
		"another trust domain": {certificates(t, sign(t, elsewhere, other, 0).Chain), "trust domain other.example; this mesh is cluster.local"},
		"no identity":          {[]*x509.Certificate{noName.Leaf}, "no SPIFFE identity"},
		"two identities":       {[]*x509.Certificate{twoNames.Leaf}, "2 URIs"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if id, err := a.Identify(tt.chain); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Identify = %v, %v, want an error with %q", id, err, tt.want)
			}
		})
	}
}

// The signatures that a handshake has verified are not verified again. But everything that may have changed
// since is checked: the time, the roots, and whether a verified chain belongs to the certificate.
func TestVerifiedChainsAreTrusted(t *testing.T) {
	a, b := authority(t, t.TempDir()), authority(t, t.TempDir())
	signed := sign(t, a, shop, 0)
	leaf, other := *signed.Leaf, sign(t, a, shop, 0).Leaf
	leaf.Signature = nil // a check of the signature would fail
	chain := []*x509.Certificate{&leaf}
	to := func(first, root *x509.Certificate) [][]*x509.Certificate { return [][]*x509.Certificate{{first, root}} }
	if id, err := a.identify(chain, to(&leaf, a.Roots()[0])); err != nil || id != shop {
		t.Errorf("identify = %v, %v, want the identity", id, err)
	}
	for name, verified := range map[string][][]*x509.Certificate{
		"none":                   nil,
		"of another root":        to(&leaf, b.Roots()[0]),
		"of another certificate": to(other, a.Roots()[0]),
	} {
		if _, err := a.identify(chain, verified); err == nil || !strings.Contains(err.Error(), "not of this mesh") {
			t.Errorf("a verified chain, %s: %v, want an error", name, err)
		}
	}
	for name, now := range map[string]time.Time{"expired": leaf.NotAfter.Add(time.Second), "not valid yet": leaf.NotBefore.Add(-time.Second)} {
		a.now = func() time.Time { return now }
		if _, err := a.identify(chain, to(&leaf, a.Roots()[0])); err == nil || !strings.Contains(err.Error(), "expired or is not yet valid") {
			t.Errorf("%s: %v, want an error", name, err)
		}
	}
}
