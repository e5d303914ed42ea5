package ca

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"outrider.dev/internal/wire"
)

// A layout is the file names of an authority.
type layout struct {
	cert  string // the signing certificate
	key   string
	chain string // its intermediates; optional
	roots string // the trust anchors: one or more
}

// layouts are the supported ones, the preferred first: that of Istio's secret cacerts,
// which is also ours, and that of a Secret of type kubernetes.io/tls, as cert-manager
// writes it.
var layouts = []layout{
	{cert: "ca-cert.pem", key: "ca-key.pem", chain: "cert-chain.pem", roots: "root-cert.pem"},
	{cert: "tls.crt", key: "tls.key", chain: "tls.crt", roots: "ca.crt"},
}

// A signer is one state of the authority's files.
type signer struct {
	cert  *x509.Certificate
	key   crypto.Signer
	chain []*x509.Certificate // cert and its intermediates, without the root; empty for a root
	root  *x509.Certificate   // of cert
	roots []*x509.Certificate // all that are trusted
	pool  *x509.CertPool      // of roots
	raw   []byte              // the files, to see whether they changed
}

// find returns the layout of dir; false: there is no authority in it.
func find(dir string) (layout, bool) {
	for _, l := range layouts {
		for _, name := range []string{l.cert, l.roots} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return l, true
			}
		}
	}
	return layouts[0], false
}

// loadOrMake reads the authority in dir, and makes one if there is none.
func loadOrMake(dir, trustDomain string) (s *signer, made bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, fmt.Errorf("the authority's directory: %w", err)
	}
	if _, ok := find(dir); !ok {
		// Two control planes that start at once on one directory make one authority.
		err := withLock(dir, func() error {
			if _, ok := find(dir); ok {
				return nil
			}
			made = true
			return makeRoot(dir, trustDomain, rootLife)
		})
		if err != nil {
			return nil, false, fmt.Errorf("making an authority in %s: %w", dir, err)
		}
	}
	s, err = load(dir)
	return s, made, err
}

// rootLife is the life of a root that is made.
const rootLife = 10 * 365 * 24 * time.Hour

// makeRoot writes a self-signed root. The key is written first: after a crash the next
// start makes a certificate for it.
func makeRoot(dir, trustDomain string, life time.Duration) error {
	names := layouts[0]
	key, err := loadOrMakeKey(filepath.Join(dir, names.key))
	if err != nil {
		return err
	}
	serial, err := newSerial()
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		// Each root has its own name: verifiers find a certificate's issuer by name.
		Subject:               pkix.Name{Organization: []string{trustDomain}, CommonName: "Outrider root " + now.UTC().Format("2006-01-02") + " " + serial.Text(16)[:8]},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(life),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	root := wire.MarshalCertificates(&x509.Certificate{Raw: der})
	if err := replace(filepath.Join(dir, names.cert), root); err != nil {
		return err
	}
	return replace(filepath.Join(dir, names.roots), root)
}

// load reads the authority in dir. Each error names the file.
func load(dir string) (*signer, error) {
	l, _ := find(dir)
	s := &signer{}
	read := func(name string) ([]byte, error) {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		s.raw = append(append(s.raw, name...), raw...)
		return raw, err
	}
	certificates := func(name string) ([]*x509.Certificate, error) {
		raw, err := read(name)
		if err != nil {
			return nil, err
		}
		certs, err := wire.ParseCertificates(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		return certs, nil
	}
	own, err := certificates(l.cert)
	if err != nil {
		return nil, err
	}
	s.cert = own[0]
	s.roots, err = certificates(l.roots)
	if errors.Is(err, os.ErrNotExist) && s.cert.CheckSignatureFrom(s.cert) == nil {
		s.roots, err = own[:1], nil // a self-signed root of a start that was interrupted
	}
	if err != nil {
		return nil, err
	}
	if s.chain, err = certificates(l.chain); errors.Is(err, os.ErrNotExist) {
		s.chain = nil
	} else if err != nil {
		return nil, err
	}
	rawKey, err := read(l.key)
	if err != nil {
		return nil, err
	}
	if s.key, err = wire.ParseKey(rawKey); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, l.key), err)
	}
	if err := s.complete(); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, l.cert), err)
	}
	return s, nil
}

// complete checks that the files belong together, and builds the chain to the root.
func (s *signer) complete() error {
	switch {
	case !wire.Fits(s.cert, s.key):
		return errors.New("the key file holds the key of another certificate")
	case !s.cert.IsCA || s.cert.KeyUsage != 0 && s.cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("the certificate may not sign others; its basic constraints need CA, its key usage keyCertSign")
	}
	s.pool = poolOf(s.roots)
	chains, err := s.cert.Verify(x509.VerifyOptions{Roots: s.pool, Intermediates: poolOf(s.chain), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return fmt.Errorf("it does not lead to a root of the mesh: %w", err)
	}
	last := len(chains[0]) - 1
	s.chain, s.root = chains[0][:last], chains[0][last]
	return nil
}

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

func (s *signer) same(other *signer) bool { return bytes.Equal(s.raw, other.raw) }

// newSerial is a random positive number of 127 bits.
func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}
