// Package spiffe reads the name of a workload from a URI or a certificate. What a trust
// domain and a path may hold is SPIFFE's own rule, by go-spiffe.
package spiffe

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"outrider.dev/internal/wire"
)

// An ID names a workload.
type ID = wire.WorkloadID

// Parse reads a URI.
func Parse(uri string) (ID, error) {
	whole, err := spiffeid.FromString(uri)
	if err != nil {
		return ID{}, fmt.Errorf("identity %q: %w", uri, err)
	}
	parts := strings.Split(whole.Path(), "/")
	if len(parts) != 5 || parts[1] != "ns" || parts[3] != "sa" {
		return ID{}, fmt.Errorf("identity %q is not of the form spiffe://<trust domain>/ns/<namespace>/sa/<service account>", uri)
	}
	return ID{TrustDomain: whole.TrustDomain().Name(), Namespace: parts[2], ServiceAccount: parts[4]}, nil
}

// Of returns whom a certificate names. SPIFFE wants exactly one URI.
func Of(cert *x509.Certificate) (ID, error) {
	switch len(cert.URIs) {
	case 0:
		return ID{}, errors.New("the certificate names no SPIFFE identity")
	case 1:
		return Parse(cert.URIs[0].String())
	}
	return ID{}, fmt.Errorf("the certificate names %d URIs; SPIFFE wants exactly one", len(cert.URIs))
}
