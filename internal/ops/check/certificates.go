package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
)

// rootWarning is the remaining lifetime below which a root should be rotated. It is long because all applications
// must get the new root before the old one expires, and some restart rarely.
const rootWarning = 30 * 24 * time.Hour

// certificates checks the mesh's roots, and the certificate that each replica presents to the API
// server.
func (s *survey) certificates(ctx context.Context) answer {
	roots, err := s.allRoots(ctx)
	if err != nil {
		return unknown(err)
	}
	own, ok := roots[s.Options.Namespace]
	if !ok {
		return skipped("there are no roots: see the check root-certificates")
	}
	authorities, err := certificatesOf(own)
	if err != nil {
		return skipped("the roots cannot be read: see the check root-certificates")
	}
	now := time.Now()
	if a := lifetimes(authorities, now); a.result != OK {
		return a
	}
	pods, err := s.allReplicas(ctx)
	if err != nil {
		return unknown(err)
	}
	shown := map[string][]*x509.Certificate{}
	for _, p := range pods {
		address, err := s.forward(ctx, p.Name, contract.WebhookPort)
		if err != nil {
			return unknown(err)
		}
		chain, err := chainOf(ctx, address)
		if err != nil {
			return unknown(fmt.Errorf("handshake with %s: %w", p.Name, err))
		}
		if a := s.serving(p.Name, chain, authorities, now); a.result != OK {
			return a
		}
		shown[p.Name] = chain
	}
	if len(shown) == 0 {
		return skipped("the root is valid until %s; no replica runs that could show its own certificate", day(earliest(authorities)))
	}
	var leaves []*x509.Certificate
	for _, chain := range shown { // any order: the minimum is the same
		leaves = append(leaves, chain[0])
	}
	return fine("the root is valid until %s; the webhook's certificate until %s, and is renewed before", day(earliest(authorities)), earliest(leaves).UTC().Format(time.RFC3339))
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func earliest(all []*x509.Certificate) time.Time {
	out := all[0].NotAfter
	for _, c := range all[1:] {
		if c.NotAfter.Before(out) {
			out = c.NotAfter
		}
	}
	return out
}

// lifetimes checks the root that expires last. After a rotation it is normal that another root has expired.
func lifetimes(roots []*x509.Certificate, now time.Time) answer {
	last := roots[0]
	for _, r := range roots {
		if r.NotAfter.After(last.NotAfter) {
			last = r
		}
	}
	switch {
	case now.After(last.NotAfter):
		return failed("rotate the root", "the root %s expired on %s: no certificate of the mesh is valid", last.Subject.CommonName, day(last.NotAfter))
	case now.Before(last.NotBefore):
		return failed("synchronize the clocks", "the root %s is valid from %s on", last.Subject.CommonName, last.NotBefore.UTC().Format(time.RFC3339))
	case last.NotAfter.Sub(now) < rootWarning:
		return warning("rotate the root", "the root %s expires on %s", last.Subject.CommonName, day(last.NotAfter))
	}
	return fine("")
}

// serving verifies the certificate of a replica's webhook as the API server does.
func (s *survey) serving(pod string, chain, roots []*x509.Certificate, now time.Time) answer {
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now, DNSName: s.serviceName(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, r := range roots {
		o.Roots.AddCert(r)
	}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(o); err != nil {
		return failed(logs(s.Options.Namespace), "the API server refuses the certificate of %s: %v", pod, err)
	}
	if left, life := chain[0].NotAfter.Sub(now), chain[0].NotAfter.Sub(chain[0].NotBefore); left < life/10 {
		return warning(logs(s.Options.Namespace), "the certificate of %s ends at %s and was not renewed yet", pod, chain[0].NotAfter.UTC().Format(time.RFC3339))
	}
	return fine("")
}

// serviceName returns the DNS name of the webhook's service. The API server verifies the webhook's certificate for
// this name.
func (s *survey) serviceName() string {
	for _, c := range s.configurations.value {
		for _, w := range c.Webhooks {
			if at := w.ClientConfig.Service; at != nil && at.Namespace == s.Options.Namespace && strings.HasPrefix(at.Name, contract.ControlPlaneName) {
				return at.Name + "." + at.Namespace + ".svc"
			}
		}
	}
	return contract.ControlPlaneName + "." + s.Options.Namespace + ".svc"
}

// chainOf returns the certificates that a server presents. It does not verify them; the caller does.
func chainOf(ctx context.Context, address string) ([]*x509.Certificate, error) {
	d := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the caller verifies the certificates
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates, nil
}
