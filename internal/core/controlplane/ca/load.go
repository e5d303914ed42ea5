package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/wire"
)

// A layout is a set of names for an authority's files.
type layout struct {
	cert  string // the signing certificate
	key   string
	chain string // intermediates of the signing certificate; optional
	roots string // the trust anchors: one or more
}

// layouts lists the supported layouts, the preferred one first. Istio's secret cacerts, which outriderd also
// writes, has the first. A Secret of type kubernetes.io/tls, as cert-manager writes it, has the second.
var layouts = []layout{
	{cert: "ca-cert.pem", key: "ca-key.pem", chain: "cert-chain.pem", roots: "root-cert.pem"},
	{cert: "tls.crt", key: "tls.key", chain: "tls.crt", roots: "ca.crt"},
}

// A signer is the parsed content of the authority's files at one time.
type signer struct {
	cert   *x509.Certificate // signing certificate; with an external authority, the control plane's own one
	key    crypto.Signer
	chain  []*x509.Certificate // cert and its intermediates, without the root; empty for a root
	root   *x509.Certificate   // the root of cert
	roots  []*x509.Certificate // all trusted roots
	pool   *x509.CertPool      // contains roots
	tokens tokenKey
	raw    []byte // content of all files, to detect changes
}

// find returns the layout of files. It returns false if they contain no authority.
func find(files map[string][]byte) (layout, bool) {
	for _, l := range layouts {
		for _, name := range []string{l.cert, l.roots} {
			if _, ok := files[name]; ok {
				return l, true
			}
		}
	}
	return layouts[0], false
}

// rootLife is the lifetime of a root that outriderd creates.
const rootLife = 10 * 365 * 24 * time.Hour

// rootName is the prefix of the common name of each root that outriderd creates.
const rootName = "Outrider root "

// addRoot adds a self-signed root to files that have none. It uses the key in files, or creates one.
func addRoot(files map[string][]byte, trustDomain string, now time.Time, life time.Duration) error {
	names := layouts[0]
	if _, ok := files[names.key]; !ok {
		_, raw, err := newKey()
		if err != nil {
			return err
		}
		files[names.key] = raw
	}
	key, err := wire.ParseKey(files[names.key])
	if err != nil {
		return fmt.Errorf("%s: %w", names.key, err)
	}
	root, err := newRoot(key, trustDomain, now, life)
	if err != nil {
		return err
	}
	files[names.cert], files[names.roots] = root, root
	return nil
}

// newRoot returns the certificate of a new root, in PEM.
func newRoot(key crypto.Signer, trustDomain string, now time.Time, life time.Duration) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// Each root has a different name, because verifiers find a certificate's issuer by name.
		Subject:               pkix.Name{Organization: []string{trustDomain}, CommonName: rootName + now.UTC().Format("2006-01-02") + " " + fmt.Sprintf("%08s", serial.Text(16))[:8]},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(life),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return wire.MarshalCertificates(&x509.Certificate{Raw: der}), nil
}

var errNoFile = errors.New("there is no such file")

// load parses the files of an authority that signs. Each error contains the store and the file.
func load(in fmt.Stringer, files map[string][]byte, now time.Time) (*signer, error) {
	l, _ := find(files)
	return loadAs(in, files, l, x509.ExtKeyUsageAny, (*signer).maySign, now)
}

// loadAs parses a certificate, its key and the roots. The certificate must allow the usage, and the function
// check must accept it.
func loadAs(in fmt.Stringer, files map[string][]byte, l layout, usage x509.ExtKeyUsage, check func(*signer) error, now time.Time) (*signer, error) {
	s := &signer{}
	about := func(name string, err error) error { return fmt.Errorf("%s/%s: %w", in, name, err) }
	read := func(name string) ([]byte, error) {
		raw, ok := files[name]
		s.raw = append(append(s.raw, name...), raw...)
		if !ok {
			return nil, about(name, errNoFile)
		}
		return raw, nil
	}
	certificates := func(name string) ([]*x509.Certificate, error) {
		raw, err := read(name)
		if err != nil {
			return nil, err
		}
		certs, err := wire.ParseCertificates(raw)
		if err != nil {
			return nil, about(name, err)
		}
		return certs, nil
	}
	own, err := certificates(l.cert)
	if err != nil {
		return nil, err
	}
	s.cert = own[0]
	s.roots, err = certificates(l.roots)
	if errors.Is(err, errNoFile) && usage == x509.ExtKeyUsageAny && s.cert.CheckSignatureFrom(s.cert) == nil {
		// The list of roots is missing, because a process stopped after it had written the self-signed root.
		s.roots, err = own[:1], nil
	}
	if err != nil {
		return nil, err
	}
	s.roots = unique(s.roots)
	if s.chain, err = certificates(l.chain); errors.Is(err, errNoFile) {
		s.chain = nil
	} else if err != nil {
		return nil, err
	}
	rawKey, err := read(l.key)
	if err != nil {
		return nil, err
	}
	if s.key, err = wire.ParseKey(rawKey); err != nil {
		return nil, about(l.key, err)
	}
	if !wire.Fits(s.cert, s.key) {
		return nil, about(l.cert, errors.New("the key file holds the key of another certificate"))
	}
	if err := check(s); err != nil {
		return nil, about(l.cert, err)
	}
	if err := s.complete(usage, now); err != nil {
		return nil, about(l.cert, err)
	}
	if s.tokens, err = s.tokenKey(files); err != nil {
		return nil, about(tokenKeyFile, err)
	}
	s.raw = append(s.raw, files[tokenKeyFile]...)
	return s, nil
}

func (s *signer) maySign() error {
	if !s.cert.IsCA || s.cert.KeyUsage != 0 && s.cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return errors.New("the certificate may not sign others; its basic constraints need CA, its key usage keyCertSign")
	}
	return nil
}

// complete finds the chain from the certificate to a root. It fails if there is none.
func (s *signer) complete(usage x509.ExtKeyUsage, now time.Time) error {
	s.pool = poolOf(s.roots)
	chains, err := s.cert.Verify(x509.VerifyOptions{Roots: s.pool, Intermediates: poolOf(s.chain), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	if err != nil {
		return fmt.Errorf("it does not lead to a root of the mesh: %w", err)
	}
	last := len(chains[0]) - 1
	s.chain, s.root = chains[0][:last], chains[0][last]
	return nil
}

// madeHere reports whether the signing certificate is a root that outriderd created. If so, outriderd
// may also create the next one.
func (s *signer) madeHere() bool {
	return s.cert.Equal(s.root) && strings.HasPrefix(s.cert.Subject.CommonName, rootName)
}

// unique removes duplicates: concatenated bundles contain some, and a ClusterTrustBundle must not.
func unique(certs []*x509.Certificate) (out []*x509.Certificate) {
	for _, c := range certs {
		if !slices.ContainsFunc(out, c.Equal) {
			out = append(out, c)
		}
	}
	return out
}

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

func (s *signer) same(other *signer) bool { return bytes.Equal(s.raw, other.raw) }

// tokenKey returns the key in the files, or derives one from the authority's key, which all replicas
// have.
func (s *signer) tokenKey(files map[string][]byte) (tokenKey, error) {
	raw, ok := files[tokenKeyFile]
	if !ok {
		return derivedTokenKey(s.key)
	}
	key, err := wire.ParseKey(raw)
	if err != nil {
		return tokenKey{}, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return tokenKey{}, errTokenKey
	}
	return newTokenKey(ec)
}

// newSerial returns a random positive number of 127 bits.
func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}
