package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"
)

// ServingNames are the names that a control plane is called by in a cluster: ours, and
// Istio's, which agents of Istio expect.
func ServingNames(namespace, domain string) []string {
	out := []string{"outriderd"}
	for _, name := range []string{"outriderd", "istiod"} {
		out = append(out, name+"."+namespace, name+"."+namespace+".svc", name+"."+namespace+".svc."+domain)
	}
	return out
}

// A Serving is the control plane's own certificate. It renews itself at half its life,
// and when the authority's files change.
type Serving struct {
	authority *Authority
	id        Identity
	names     []string
	life      time.Duration

	mu     sync.Mutex
	cert   *tls.Certificate
	by     *signer
	renew  time.Time
	expiry time.Time
}

// CheckName says why a certificate cannot have that name, which is to be a DNS name or an
// IP address, as a client writes it into a URL but for its port and brackets.
func CheckName(name string) error {
	if _, err := netip.ParseAddr(name); err == nil && !strings.Contains(name, "%") {
		return nil
	}
	if len(name) > 253 || !dnsName.MatchString(name) {
		return fmt.Errorf("%q: want a DNS name or an IP address, without a scheme, a port or brackets", name)
	}
	return nil
}

// dnsName has labels of letters, digits and dashes; the last one begins with a letter, for
// what begins with a digit was to be an address.
var dnsName = regexp.MustCompile(`^(\*\.)?([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.)*[a-zA-Z]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)

// apart are the DNS names and the addresses of names.
func apart(names []string) (dns []string, ips []net.IP) {
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			ips = append(ips, ip.AsSlice())
		} else {
			dns = append(dns, name)
		}
	}
	return dns, ips
}

// NewServing signs the first certificate: for an identity, and for DNS names and IP
// addresses. Life zero is the authority's default.
func (a *Authority) NewServing(id Identity, names []string, life time.Duration) (*Serving, error) {
	for _, name := range names {
		if err := CheckName(name); err != nil {
			return nil, fmt.Errorf("the control plane's own certificate: %w", err)
		}
	}
	s := &Serving{authority: a, id: id, names: names, life: life}
	if _, err := s.Certificate(); err != nil {
		return nil, fmt.Errorf("the control plane's own certificate: %w", err)
	}
	return s, nil
}

// Certificate returns the one to show now. If a new one cannot be signed the old one is
// shown as long as it is valid.
func (s *Serving) Certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, by := s.authority.now(), s.authority.current.Load()
	if s.cert != nil && now.Before(s.renew) && s.by == by {
		return s.cert, nil
	}
	cert, err := s.next()
	if err != nil {
		if s.cert != nil && now.Before(s.expiry) {
			return s.cert, nil
		}
		return nil, err
	}
	s.cert, s.by, s.expiry = cert, by, cert.Leaf.NotAfter
	s.renew = now.Add(s.expiry.Sub(now) / 2)
	return cert, nil
}

func (s *Serving) next() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	signed, err := s.authority.sign(key.Public(), holder{Identity: s.id, names: s.names}, s.life)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: signed.served, PrivateKey: key, Leaf: signed.Leaf}, nil
}

// TLS returns the configuration of port 15012. A client may come without a certificate,
// since it asks for its first one here; one that it shows must be of this mesh.
//
// There are no session tickets: a resumed connection would outlive the removal of a root.
func (s *Serving) TLS() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, SessionTicketsDisabled: true}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cert, err := s.Certificate()
		if err != nil {
			return nil, err
		}
		c := &tls.Config{
			MinVersion: base.MinVersion, NextProtos: base.NextProtos, SessionTicketsDisabled: true,
			Certificates: []tls.Certificate{*cert},
			ClientAuth:   tls.VerifyClientCertIfGiven,
			ClientCAs:    s.authority.current.Load().pool,
		}
		c.VerifyConnection = s.verify
		return c, nil
	}
	// Some look for a certificate before they serve.
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate() }
	return base
}

// verify refuses a certificate of another trust domain, or without an identity. One of a
// host that is gone may come here with a new token.
func (s *Serving) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	_, err := s.authority.verify(state.PeerCertificates)
	return err
}
