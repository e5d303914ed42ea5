package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"

	"outrider.dev/internal/base/contract"
)

// ServingNames returns the DNS names of a control plane in a cluster: Outrider's, and those that
// Istio's agents expect.
func ServingNames(namespace, domain string) []string {
	out := []string{contract.ControlPlaneName}
	for _, name := range []string{contract.ControlPlaneName, "istiod"} {
		out = append(out, name+"."+namespace, name+"."+namespace+".svc", name+"."+namespace+".svc."+domain)
	}
	return out
}

// A Serving is the control plane's own certificate. It is renewed at half of its lifetime, and when the
// authority's files change.
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
	config *tls.Config // shared by all connections of a day; contains cert and the roots of the signer
	day    string      // the day for which the ticket keys were derived
}

// CheckName returns an error unless name is a DNS name or an IP address that a certificate can contain.
func CheckName(name string) error {
	if _, err := netip.ParseAddr(name); err == nil && !strings.Contains(name, "%") {
		return nil
	}
	if len(name) > 253 || !dnsName.MatchString(name) {
		return fmt.Errorf("%q: want a DNS name or an IP address, without scheme, port or brackets", name)
	}
	return nil
}

// dnsName matches names whose labels consist of letters, digits, dashes and underscores. The last label must
// begin with a letter: if it begins with a digit, the name is a mistyped address.
var dnsName = regexp.MustCompile(`^(\*\.)?([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.)*[a-zA-Z]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)

// splitNames separates DNS names from IP addresses.
func splitNames(names []string) (dns []string, ips []net.IP) {
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			ips = append(ips, ip.AsSlice())
		} else {
			dns = append(dns, name)
		}
	}
	return dns, ips
}

// NewServing signs the first certificate, for an identity, DNS names and IP addresses. A life of zero means
// the authority's default. It fails if a name is invalid, or if the authority cannot sign.
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

// Certificate returns the current certificate. If a new one cannot be signed, it returns the old one as long
// as that is valid.
func (s *Serving) Certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, by := s.authority.now(), s.authority.loaded()
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
	if s.authority.External() {
		return s.authority.loaded().served(), nil
	}
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

// TLS returns the configuration of port 15012. A client's certificate is optional, because clients request
// their first one here; if there is one, it must belong to this mesh.
//
// A client may resume a session, also with another replica or after a restart, which halves the work of a
// handshake. A resumption is refused whenever a full handshake would be: the ticket contains the client's
// certificate, which must still be valid and signed by a current root.
//
// TLS 1.2 is for clients that are not ours: an Envoy with a bootstrap of its own ends there by default.
func (s *Serving) TLS() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, SessionTicketsDisabled: true}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(base) }
	// Some servers require GetCertificate to be set.
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate() }
	return base
}

// current returns the configuration for a new connection. All connections share one until the
// certificate or the roots change.
func (s *Serving) current(base *tls.Config) (*tls.Config, error) {
	cert, err := s.Certificate()
	if err != nil {
		return nil, err
	}
	by, today := s.authority.loaded(), s.authority.now().UTC()
	day := today.Format(time.DateOnly)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.config; c == nil || c.ClientCAs != by.pool || c.Certificates[0].Leaf != cert.Leaf || s.day != day {
		keys, err := by.ticketKeys(today)
		if err != nil {
			return nil, err
		}
		s.day = day
		s.config = &tls.Config{
			MinVersion: base.MinVersion, NextProtos: base.NextProtos,
			Certificates: []tls.Certificate{*cert},
			ClientAuth:   tls.VerifyClientCertIfGiven, ClientCAs: by.pool, Time: s.authority.now,
			VerifyConnection: s.verify,
		}
		s.config.SetSessionTicketKeys(keys)
	}
	return s.config, nil
}

// ticketKeys returns the keys of TLS session tickets. The first encrypts the tickets of a day, the second
// decrypts those of the day before. They are derived from the authority's key, which all replicas have. That
// gives nothing away: a process that has this key can sign any identity anyway. With an external authority
// they are derived from the control plane's own key, whose holder can already answer every proxy.
func (s *signer) ticketKeys(day time.Time) ([][32]byte, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return nil, fmt.Errorf("the keys of session tickets: %w", err)
	}
	keys := make([][32]byte, 2)
	for i := range keys {
		key, err := hkdf.Key(sha256.New, secret, nil, "outrider session ticket "+day.AddDate(0, 0, -i).Format(time.DateOnly), len(keys[i]))
		if err != nil {
			return nil, fmt.Errorf("the keys of session tickets: %w", err)
		}
		copy(keys[i][:], key)
	}
	return keys, nil
}

// verify rejects the certificate of a client if it is of another trust domain or has no identity. A host that
// was removed may connect, because it may have a new token.
func (s *Serving) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	_, err := s.authority.verify(state.PeerCertificates, state.VerifiedChains)
	return err
}
