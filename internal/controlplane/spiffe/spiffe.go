// Package spiffe is the name of a workload in a mesh, as Istio writes it:
// spiffe://<trust domain>/ns/<namespace>/sa/<service account>.
//
// What a trust domain and a path may look like is SPIFFE's own rule, by go-spiffe. The
// agent and the control plane both use this package.
package spiffe

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An ID names a workload.
type ID struct {
	TrustDomain    string
	Namespace      string
	ServiceAccount string
}

// String is the URI.
func (id ID) String() string {
	return "spiffe://" + id.TrustDomain + "/ns/" + id.Namespace + "/sa/" + id.ServiceAccount
}

// URL is the URI as a certificate wants it.
func (id ID) URL() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: id.TrustDomain, Path: "/ns/" + id.Namespace + "/sa/" + id.ServiceAccount}
}

// Check says what of the name cannot be.
func (id ID) Check() error {
	if _, err := spiffeid.TrustDomainFromString(id.TrustDomain); err != nil || strings.Contains(id.TrustDomain, "/") {
		return fmt.Errorf("trust domain %q: use lower case letters, digits, dots, dashes and underscores", id.TrustDomain)
	}
	for _, part := range []struct{ name, value string }{{"namespace", id.Namespace}, {"service account", id.ServiceAccount}} {
		if err := spiffeid.ValidatePathSegment(part.value); err != nil {
			return fmt.Errorf("%s %q: use letters, digits, dots, dashes and underscores", part.name, part.value)
		}
	}
	return nil
}

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
