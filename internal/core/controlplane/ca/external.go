package ca

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// An external authority, such as cert-manager's istio-csr, may sign the certificates of a mesh instead. It
// also serves Istio's certificate service. The [Authority] then signs nothing, and its store contains the
// control plane's own certificate with its key, and the roots: tls.crt, tls.key and ca.crt, as cert-manager
// writes them. The Authority still verifies certificates, and its record keeps roots that were removed from
// the store.

var errSignsNothing = errors.New("this control plane signs no certificates: another authority does")

// External reports whether another authority signs the certificates.
func (a *Authority) External() bool { return a.o.external() }

func (o AuthorityOptions) external() bool { return len(o.ServesOnly) > 0 }

func (o AuthorityOptions) read(files map[string][]byte, now time.Time) (*signer, error) {
	if o.external() {
		return loadServing(o.Store, files, o.ServesOnly, now)
	}
	return load(o.Store, files, now)
}

// loadServing reads a server's certificate, its key and the roots. The certificate must contain all
// names.
func loadServing(in fmt.Stringer, files map[string][]byte, names []string, now time.Time) (*signer, error) {
	l := layouts[1]
	s, err := loadAs(in, files, l, x509.ExtKeyUsageServerAuth, func(s *signer) error {
		if s.cert.IsCA {
			return errors.New("the certificate is that of an authority; want one for a server, since another authority signs")
		}
		var missing []string
		for _, name := range names {
			if s.cert.VerifyHostname(name) != nil {
				missing = append(missing, name)
			}
		}
		if missing != nil {
			return fmt.Errorf("the certificate lacks the DNS names %s: proxies and the API server know the control plane by them", strings.Join(missing, ", "))
		}
		return nil
	}, now)
	if err == nil && len(s.chain) == 0 {
		return nil, fmt.Errorf("%s/%s: the certificate is a root itself; want the roots of the authority that signs in %s", in, l.cert, l.roots)
	}
	return s, err
}

// served returns the certificate in an external authority's store in the form that a TLS server sends.
func (s *signer) served() *tls.Certificate {
	out := &tls.Certificate{PrivateKey: s.key, Leaf: s.cert}
	for _, c := range s.chain {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out
}
