package ca

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"time"
)

// A Host is a machine outside of Kubernetes. It joins the mesh with a one-time token.
type Host struct {
	Namespace      string
	Name           string
	ServiceAccount string
}

func (h Host) String() string { return h.Namespace + "/" + h.Name }

// Gone returns the error for a certificate of a host that was removed.
func (h Host) Gone() error {
	return fmt.Errorf("host %s of this certificate is not in the mesh, or has another service account than %s", h, h.ServiceAccount)
}

// Hosts looks up the hosts that are currently in the mesh.
type Hosts interface {
	// HostByToken returns the host for which a token was issued, by the SHA-256 of the token.
	HostByToken(sum [32]byte) (Host, bool)
	// Has reports whether there is a host with this name and service account.
	Has(Host) bool
	// Any reports whether there is any host.
	Any() bool
}

// hostAttribute is the attribute of a certificate's subject that contains the name of the host ("host", RFC
// 4524, section 2.7). The identity does not contain that name, because pods may have the same identity.
var hostAttribute = asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 9}

// hostOf returns the host to which a certificate for id belongs; false: it belongs to no host.
func hostOf(leaf *x509.Certificate, id Identity) (Host, bool) {
	for _, a := range leaf.Subject.Names {
		if name, ok := a.Value.(string); ok && a.Type.Equal(hostAttribute) {
			return Host{id.Namespace, name, id.ServiceAccount}, true
		}
	}
	return Host{}, false
}

// retryWindow is the time for which a token may be used again, with the same key.
const retryWindow = 10 * time.Minute

// HostTokens authenticates hosts by one-time tokens.
type HostTokens struct {
	TrustDomain string
	Hosts       Hosts
	Used        UsedTokens
}

// Authenticate returns the host for which the token was issued. The caller must call Spend, which refuses a
// token that was used before.
func (h HostTokens) Authenticate(ctx context.Context, c Credentials) (Caller, error) {
	if c.Bearer == "" {
		return Caller{}, ErrOther
	}
	sum := sha256.Sum256([]byte(c.Bearer))
	host, ok := h.Hosts.HostByToken(sum)
	if !ok {
		return Caller{}, ErrOther
	}
	caller, err := newCaller(Identity{TrustDomain: h.TrustDomain, Namespace: host.Namespace, ServiceAccount: host.ServiceAccount}, "host token")
	if err != nil {
		return Caller{}, err
	}
	caller.Host = host.Name
	caller.Spend = func(key [32]byte) error {
		ok, err := h.Used.Use(ctx, sum, key, time.Now())
		if err == nil && !ok {
			return refuse("the token of host %s was used already; it is good for one certificate, which then renews itself", host)
		}
		return err
	}
	return caller, nil
}
