package ca

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"outrider.dev/internal/wire"
)

// clockSkew is how far in the past a certificate becomes valid, for hosts with a slow
// clock. Istio's value (ClockSkewGracePeriod).
const clockSkew = 2 * time.Minute

// defaultMaxLife is how long a certificate is good at most when its pod or host is gone: peers
// look at nothing but its time. Istio's is 90 days (MAX_WORKLOAD_CERT_TTL).
const defaultMaxLife = 24 * time.Hour

// watchPoll is how often files are read where they cannot be watched.
const watchPoll = 10 * time.Second

// AuthorityOptions of an authority. The zero value of a field means its default.
type AuthorityOptions struct {
	// Dir holds the signing certificate, its key and the roots, named as in Istio's secret
	// cacerts (ca-cert.pem, ca-key.pem, cert-chain.pem, root-cert.pem) or by cert-manager
	// (tls.crt, tls.key, ca.crt). In an empty directory a root is made.
	Dir         string
	TrustDomain string        // default "cluster.local"
	Life        time.Duration // of a certificate whose request names none; default 24h
	MaxLife     time.Duration // the longest that a request gets; default 24h, or Life if that is longer
	Hosts       Hosts         // a host's certificate is valid while the host is one of them; default: no hosts
	Log         *slog.Logger  // default: none
}

func (o AuthorityOptions) withDefaults() AuthorityOptions {
	o.TrustDomain = cmp.Or(o.TrustDomain, "cluster.local")
	o.Life = cmp.Or(o.Life, 24*time.Hour)
	o.MaxLife = cmp.Or(o.MaxLife, max(o.Life, defaultMaxLife))
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

func (o AuthorityOptions) check() error {
	switch {
	case o.Dir == "":
		return errors.New("option Dir: name the directory of the authority's files")
	case o.Life < time.Second || o.MaxLife < time.Second:
		return fmt.Errorf("options Life %s, MaxLife %s: use 1s or more", o.Life, o.MaxLife)
	}
	if err := (Identity{TrustDomain: o.TrustDomain, Namespace: "x", ServiceAccount: "x"}).Check(); err != nil {
		return fmt.Errorf("option TrustDomain: %w", err)
	}
	return nil
}

// An Authority signs the certificates of a mesh and verifies them.
type Authority struct {
	o       AuthorityOptions
	now     func() time.Time
	current atomic.Pointer[signer]

	mu      sync.Mutex
	changed chan struct{} // closed when current is replaced
}

// NewAuthority loads the authority in a directory, or makes one there.
func NewAuthority(o AuthorityOptions) (*Authority, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	s, made, err := loadOrMake(o.Dir, o.TrustDomain)
	if err != nil {
		return nil, err
	}
	a := &Authority{o: o, now: time.Now, changed: make(chan struct{})}
	a.current.Store(s)
	o.Log.Info("authority loaded", "dir", o.Dir, "made", made, "root", s.root.Subject.String(), "not_after", s.cert.NotAfter)
	return a, nil
}

// TrustDomain returns the trust domain of the certificates that the authority signs.
func (a *Authority) TrustDomain() string { return a.o.TrustDomain }

// Roots returns the mesh's trust anchors: during a rotation, the old and the new root.
func (a *Authority) Roots() []*x509.Certificate { return slices.Clone(a.current.Load().roots) }

// RootsPEM is Roots in PEM.
func (a *Authority) RootsPEM() []byte { return wire.MarshalCertificates(a.current.Load().roots...) }

// Changed returns a channel that is closed when the authority's files have changed.
func (a *Authority) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// Reload reads the files again. If they do not belong together, the authority stays as it
// is.
func (a *Authority) Reload() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, err := load(a.o.Dir)
	if err != nil {
		return fmt.Errorf("the authority stays as it was: %w", err)
	}
	if s.same(a.current.Load()) {
		return nil
	}
	a.current.Store(s)
	close(a.changed)
	a.changed = make(chan struct{})
	a.o.Log.Info("authority reloaded", "root", s.root.Subject.String(), "roots", len(s.roots), "not_after", s.cert.NotAfter)
	return nil
}

// Run reloads the files when they change, until ctx ends.
func (a *Authority) Run(ctx context.Context) error {
	l, _ := find(a.o.Dir)
	last := ""
	stop := wire.WatchFiles(watchPoll, func() {
		err := a.Reload()
		switch {
		case err == nil:
			last = ""
		case err.Error() != last: // files that are written one by one fail until the last is there
			last = err.Error()
			a.o.Log.Warn("authority not reloaded", "reason", last)
		}
	}, a.o.Dir+"/"+l.cert)
	defer stop()
	// For changes before the watch began.
	if err := a.Reload(); err != nil {
		a.o.Log.Warn("authority not reloaded", "reason", err)
	}
	<-ctx.Done()
	return nil
}

// A Certificate is one that was signed.
type Certificate struct {
	Leaf *x509.Certificate
	// Chain is the response to a client, one PEM block per entry: the leaf, its
	// intermediates, the other roots of the mesh, and its own root, which Istio expects last.
	Chain []string

	served [][]byte // what a TLS server sends: the leaf and its intermediates
}

// Sign makes a certificate of id for a public key. A life of zero is the default; a longer
// one than the maximum is shortened.
func (a *Authority) Sign(public crypto.PublicKey, id Identity, life time.Duration) (*Certificate, error) {
	return a.sign(public, holder{Identity: id}, life)
}

// A holder is the subject of a certificate.
type holder struct {
	Identity
	host  string   // empty: it is not a host
	names []string // DNS names and addresses of a server
}

func (a *Authority) sign(public crypto.PublicKey, id holder, life time.Duration) (*Certificate, error) {
	if err := id.Check(); err != nil {
		return nil, err
	}
	if id.TrustDomain != a.o.TrustDomain {
		return nil, fmt.Errorf("this authority signs for trust domain %s, not for %s", a.o.TrustDomain, id.TrustDomain)
	}
	s, now := a.current.Load(), a.now()
	if life <= 0 {
		life = a.o.Life
	}
	end := now.Add(min(life, a.o.MaxLife))
	if end.After(s.cert.NotAfter) {
		end = s.cert.NotAfter // beyond it the chain does not verify
	}
	if !end.After(now) {
		return nil, fmt.Errorf("the authority's own certificate expired at %s", s.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		URIs:         []*url.URL{id.URL()},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     end,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},

		BasicConstraintsValid: true,
	}
	template.DNSNames, template.IPAddresses = splitNames(id.names)
	if id.host != "" {
		template.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: hostAttribute, Value: id.host}}
	}
	if _, ok := public.(*rsa.PublicKey); ok {
		template.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, public, s.key)
	if err != nil {
		return nil, fmt.Errorf("signing for %s: %w", id, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("signing for %s: %w", id, err)
	}
	return s.certificate(leaf), nil
}

func (s *signer) certificate(leaf *x509.Certificate) *Certificate {
	chain := append([]*x509.Certificate{leaf}, s.chain...)
	c := &Certificate{Leaf: leaf}
	for _, one := range chain {
		c.served = append(c.served, one.Raw)
	}
	for _, r := range s.roots {
		if !r.Equal(s.root) {
			chain = append(chain, r)
		}
	}
	for _, one := range append(chain, s.root) {
		c.Chain = append(c.Chain, string(wire.MarshalCertificates(one)))
	}
	return c
}

// Identify returns the identity in a chain of certificates if the chain ends at a current
// root of the mesh, is of this trust domain and is valid now. A host's must also be of a
// host that is in the mesh.
func (a *Authority) Identify(chain []*x509.Certificate) (Identity, error) {
	return a.identify(chain, nil)
}

// identify is Identify of a chain for which a handshake has found these ones.
func (a *Authority) identify(chain []*x509.Certificate, verified [][]*x509.Certificate) (Identity, error) {
	id, err := a.verify(chain, verified)
	if err != nil {
		return Identity{}, err
	}
	if host, ok := hostOf(chain[0], id); ok && (a.o.Hosts == nil || !a.o.Hosts.Has(host)) {
		return Identity{}, host.Gone()
	}
	return id, nil
}

// trusts reports whether a chain of a certificate, which a handshake has verified, is valid now
// and ends at a current root. Its signatures, 0.08 ms for a chain, are not checked again.
func (a *Authority) trusts(leaf *x509.Certificate, verified [][]*x509.Certificate) bool {
	now, roots := a.now(), a.current.Load().roots
	expired := func(c *x509.Certificate) bool { return now.Before(c.NotBefore) || now.After(c.NotAfter) }
	return slices.ContainsFunc(verified, func(chain []*x509.Certificate) bool {
		return chain[0].Equal(leaf) && !slices.ContainsFunc(chain, expired) && slices.ContainsFunc(roots, chain[len(chain)-1].Equal)
	})
}

// verify is identify without the check of the host.
func (a *Authority) verify(chain []*x509.Certificate, verified [][]*x509.Certificate) (Identity, error) {
	if len(chain) == 0 {
		return Identity{}, errors.New("the client sent no certificate")
	}
	if !a.trusts(chain[0], verified) {
		_, err := chain[0].Verify(x509.VerifyOptions{
			Roots: a.current.Load().pool, Intermediates: poolOf(chain[1:]), CurrentTime: a.now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if err != nil {
			return Identity{}, fmt.Errorf("the certificate is not of this mesh: %w", err)
		}
	}
	id, err := IdentityOf(chain[0])
	if err != nil {
		return Identity{}, err
	}
	if id.TrustDomain != a.o.TrustDomain {
		return Identity{}, fmt.Errorf("the certificate is of trust domain %s; this mesh is %s", id.TrustDomain, a.o.TrustDomain)
	}
	return id, nil
}
