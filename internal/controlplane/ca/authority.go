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

	"outrider.dev/internal/controlplane/spiffe"
	"outrider.dev/internal/wire"
)

// clockSkew is how far a certificate's life begins in the past, so that a host whose
// clock is behind takes it. Istio's value (ClockSkewGracePeriod).
const clockSkew = 2 * time.Minute

// watchPoll is how often files are looked at where they cannot be watched.
const watchPoll = 10 * time.Second

// AuthorityOptions say where an authority is and what it signs. The zero value of a
// field means its default.
type AuthorityOptions struct {
	// Dir holds the certificate that signs, its key and the roots, by the names of
	// Istio's secret cacerts (ca-cert.pem, ca-key.pem, cert-chain.pem, root-cert.pem) or
	// of cert-manager (tls.crt, tls.key, ca.crt). If there is nothing a root is made.
	Dir         string
	TrustDomain string        // default "cluster.local"
	Life        time.Duration // of a certificate, where nobody asks for another; default 24h
	MaxLife     time.Duration // the most that is given; default 90 days, Istio's MAX_WORKLOAD_CERT_TTL
	RootLife    time.Duration // of a root that is made; default ten years
	Hosts       Hosts         // a host's certificate is good while it is one of them; default: there are none
	Log         *slog.Logger  // default: none
}

func (o AuthorityOptions) withDefaults() AuthorityOptions {
	o.TrustDomain = cmp.Or(o.TrustDomain, "cluster.local")
	o.Life = cmp.Or(o.Life, 24*time.Hour)
	o.MaxLife = cmp.Or(o.MaxLife, 90*24*time.Hour)
	o.RootLife = cmp.Or(o.RootLife, 10*365*24*time.Hour)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

func (o AuthorityOptions) check() error {
	switch {
	case o.Dir == "":
		return errors.New("option Dir: name the directory of the authority's files")
	case o.Life < time.Second || o.MaxLife < time.Second || o.RootLife < time.Second:
		return fmt.Errorf("options Life %s, MaxLife %s, RootLife %s: use 1s or more", o.Life, o.MaxLife, o.RootLife)
	}
	if err := (Identity{TrustDomain: o.TrustDomain, Namespace: "x", ServiceAccount: "x"}).Check(); err != nil {
		return fmt.Errorf("option TrustDomain: %w", err)
	}
	return nil
}

// An Authority signs certificates, and says whether one is of this mesh.
type Authority struct {
	o       AuthorityOptions
	now     func() time.Time
	current atomic.Pointer[signer]

	mu      sync.Mutex
	changed chan struct{} // closed when current is another
}

// NewAuthority loads the authority in a directory, or makes one there.
func NewAuthority(o AuthorityOptions) (*Authority, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	s, made, err := loadOrMake(o.Dir, o.TrustDomain, o.RootLife)
	if err != nil {
		return nil, err
	}
	a := &Authority{o: o, now: time.Now, changed: make(chan struct{})}
	a.current.Store(s)
	o.Log.Info("authority loaded", "dir", o.Dir, "made", made, "root", s.root.Subject.String(), "not_after", s.cert.NotAfter)
	return a, nil
}

// TrustDomain returns whose certificates the authority signs.
func (a *Authority) TrustDomain() string { return a.o.TrustDomain }

// Roots returns whom the mesh trusts: while roots are exchanged, the old and the new.
func (a *Authority) Roots() []*x509.Certificate { return slices.Clone(a.current.Load().roots) }

// RootsPEM is Roots as a file.
func (a *Authority) RootsPEM() []byte { return wire.MarshalCertificates(a.current.Load().roots...) }

// Changed returns a channel that is closed when the authority's files have changed.
func (a *Authority) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// Reload reads the files again. If they do not fit together the authority stays as it
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
		case err.Error() != last: // files that are written one by one fail until the last
			last = err.Error()
			a.o.Log.Warn("authority not reloaded", "reason", last)
		}
	}, a.o.Dir+"/"+l.cert)
	defer stop()
	// What changed before the watch began, nothing would tell.
	if err := a.Reload(); err != nil {
		a.o.Log.Warn("authority not reloaded", "reason", err)
	}
	<-ctx.Done()
	return nil
}

// A Certificate is one that was signed.
type Certificate struct {
	Leaf *x509.Certificate
	// Chain is what a client gets, one PEM an entry: the leaf, what is between it and its
	// root, the other roots of the mesh, and its own root, which Istio wants last.
	Chain []string

	served [][]byte // what a server shows: the leaf and what is between it and its root
}

// Sign names id in a certificate for a key. Life is what was asked for; zero is the
// default, and more than the most is the most.
func (a *Authority) Sign(public crypto.PublicKey, id Identity, life time.Duration) (*Certificate, error) {
	return a.sign(public, holder{Identity: id}, life)
}

// A holder is whom a certificate is for.
type holder struct {
	Identity
	host  string   // empty: it is none
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
		end = s.cert.NotAfter // a longer life than the signer's would not verify
	}
	if !end.After(now) {
		return nil, fmt.Errorf("the authority's own certificate expired at %s", s.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	form := &x509.Certificate{
		SerialNumber: serial,
		URIs:         []*url.URL{id.URL()},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     end,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},

		BasicConstraintsValid: true,
	}
	form.DNSNames, form.IPAddresses = apart(id.names)
	if id.host != "" {
		form.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: hostAttribute, Value: id.host}}
	}
	if _, ok := public.(*rsa.PublicKey); ok {
		form.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
	der, err := x509.CreateCertificate(rand.Reader, form, s.cert, public, s.key)
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
	way := append([]*x509.Certificate{leaf}, s.chain...)
	c := &Certificate{Leaf: leaf}
	for _, one := range way {
		c.served = append(c.served, one.Raw)
	}
	for _, r := range s.roots {
		if !r.Equal(s.root) {
			way = append(way, r)
		}
	}
	for _, one := range append(way, s.root) {
		c.Chain = append(c.Chain, string(wire.MarshalCertificates(one)))
	}
	return c
}

// Identify returns whom a chain of certificates names, if it ends at a root of the mesh
// now, is for this trust domain, and is valid now; and if it is a host's, while the mesh has
// that host.
func (a *Authority) Identify(chain []*x509.Certificate) (Identity, error) {
	id, err := a.verify(chain)
	if err != nil {
		return Identity{}, err
	}
	if host, ok := hostOf(chain[0], id); ok && (a.o.Hosts == nil || !a.o.Hosts.Has(host)) {
		return Identity{}, host.Gone()
	}
	return id, nil
}

// verify is Identify without a look at the mesh.
func (a *Authority) verify(chain []*x509.Certificate) (Identity, error) {
	if len(chain) == 0 {
		return Identity{}, errors.New("no certificate was shown")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: a.current.Load().pool, Intermediates: between, CurrentTime: a.now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Identity{}, fmt.Errorf("the certificate is none of this mesh: %w", err)
	}
	id, err := spiffe.Of(chain[0])
	if err != nil {
		return Identity{}, err
	}
	if id.TrustDomain != a.o.TrustDomain {
		return Identity{}, fmt.Errorf("the certificate is of trust domain %s; this mesh is %s", id.TrustDomain, a.o.TrustDomain)
	}
	return id, nil
}
