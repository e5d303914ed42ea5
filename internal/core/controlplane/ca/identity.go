package ca

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"outrider.dev/internal/base/wire"
)

// An Identity is the SPIFFE identity of a workload in a mesh.
type Identity = wire.WorkloadID

// ParseIdentity parses the SPIFFE URI of a workload. It fails unless the URI has the form that Istio defines.
func ParseIdentity(uri string) (Identity, error) {
	id, err := spiffeid.FromString(uri)
	if err != nil {
		return Identity{}, fmt.Errorf("identity %q: %w", uri, err)
	}
	parts := strings.Split(id.Path(), "/")
	if len(parts) != 5 || parts[1] != "ns" || parts[3] != "sa" {
		return Identity{}, fmt.Errorf("identity %q is not of the form spiffe://<trust domain>/ns/<namespace>/sa/<service account>", uri)
	}
	return Identity{TrustDomain: id.TrustDomain().Name(), Namespace: parts[2], ServiceAccount: parts[4]}, nil
}

// IdentityOf returns the identity in a certificate. It fails unless the certificate has exactly one URI, as
// SPIFFE requires.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	switch len(cert.URIs) {
	case 0:
		return Identity{}, errors.New("the certificate has no SPIFFE identity")
	case 1:
		return ParseIdentity(cert.URIs[0].String())
	}
	return Identity{}, fmt.Errorf("the certificate has %d URIs; SPIFFE requires exactly one", len(cert.URIs))
}
