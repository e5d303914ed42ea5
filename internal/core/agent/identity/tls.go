package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
)

// tls requires the control plane's identity: a certificate from the same root is not enough, since
// every workload has one. Our own certificate is not presented.
func (c *Client) tls(roots []*x509.Certificate) *tls.Config {
	host, _, _ := net.SplitHostPort(c.Address)
	wanted := c.identities()
	oldest := uint16(tls.VersionTLS12) // another authority may be of a FIPS build that ends there
	if c.Outriderd {
		oldest = tls.VersionTLS13
	}
	return &tls.Config{
		MinVersion: oldest, ServerName: host,
		// verify does the skipped checks, and also understands SPIFFE URIs.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			f := verify(c.Address, s.PeerCertificates, roots, wanted)
			if f == nil && c.Outriderd {
				f = verifyOutriderd(c.Address, s.PeerCertificates[0])
			}
			if f != nil {
				return f
			}
			return nil
		},
	}
}

// identities returns the accepted names of the control plane; its certificate must contain one.
func (c *Client) identities() []string {
	if len(c.Identity) > 0 {
		return c.Identity
	}
	host, _, _ := net.SplitHostPort(c.Address)
	return []string{host}
}

// verify checks a server's chain: its root, its validity period and its names.
func verify(address string, chain, roots []*x509.Certificate, wanted []string) *Fault {
	if len(chain) == 0 {
		return fault(Untrusted, "the control plane %s shows no certificate", address)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: pool(roots), Intermediates: pool(chain[1:]), CurrentTime: time.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fault(Untrusted, "the control plane %s shows a certificate of an unknown root (issuer %q); is the root certificate here an old one?", address, chain[0].Issuer)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fault(Untrusted, "the control plane %s shows a certificate that is valid from %s to %s; is a clock wrong?", address,
			chain[0].NotBefore.UTC().Format(time.RFC3339), chain[0].NotAfter.UTC().Format(time.RFC3339))
	case err != nil:
		return fault(Untrusted, "the control plane %s shows an invalid certificate: %v", address, err)
	}
	if !slices.ContainsFunc(wanted, func(name string) bool { return names(chain[0], name) }) {
		return fault(Untrusted, "%s is %s, and not the control plane %s", address, strings.Join(allNames(chain[0]), ", "), strings.Join(wanted, " or "))
	}
	return nil
}

// verifyOutriderd refuses another control plane with the same API, such as istiod: a pod would get
// a certificate from it, but no configuration that its Envoy accepts.
func verifyOutriderd(address string, cert *x509.Certificate) *Fault {
	if names(cert, contract.ControlPlaneName) {
		return nil
	}
	return fault(Untrusted, "%s is %s, and no outriderd: outrider-agent takes its configuration from outriderd only; with istiod use Istio's proxy (docs/interop.md)",
		address, strings.Join(allNames(cert), ", "))
}

// names reports whether a certificate contains a name: a URI, a DNS name or an address.
func names(cert *x509.Certificate, name string) bool {
	if !strings.Contains(name, "://") {
		return cert.VerifyHostname(name) == nil
	}
	return slices.ContainsFunc(cert.URIs, func(uri *url.URL) bool { return uri.String() == name })
}

func allNames(cert *x509.Certificate) []string {
	out := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		out = append(out, ip.String())
	}
	for _, uri := range cert.URIs {
		out = append(out, uri.String())
	}
	if len(out) == 0 {
		return []string{"a server without a name"}
	}
	return out
}

func pool(certs []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}

// TLS configures this workload's connections to the control plane at address (host:port) for
// everything but certificates. Each handshake presents the current certificate and trusts the same
// roots as Envoy; both are read from their files. If they are missing, the handshake fails.
func (k *Keeper) TLS(address string) *tls.Config {
	client := k.o.Client
	client.Address, client.Outriderd = address, true
	out := client.tls(nil)
	out.VerifyConnection = func(s tls.ConnectionState) error {
		return client.tls(readRoots(k.o.Dir)).VerifyConnection(s)
	}
	out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		h, err := readHeld(k.o.Dir)
		if err != nil {
			return nil, fault(Broken, "there is no certificate yet: %v", err)
		}
		return h.certificate(), nil
	}
	return out
}

// certificate returns h in the form of crypto/tls.
func (h *held) certificate() *tls.Certificate {
	out := &tls.Certificate{PrivateKey: h.key, Leaf: h.leaf()}
	for _, c := range h.chain {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out
}
