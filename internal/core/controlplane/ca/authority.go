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
	"time"

	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/base/wire"
)

// clockSkew is the time by which certificates are backdated, for hosts whose clock is slow. The value is
// Istio's (ClockSkewGracePeriod).
const clockSkew = 2 * time.Minute

// defaultMaxLife limits the time for which a certificate stays valid after its pod or host is gone: peers
// check only its validity period, because there is no revocation. In Istio it is 90 days
// (MAX_WORKLOAD_CERT_TTL).
const defaultMaxLife = 24 * time.Hour

// watchPoll is the interval between reads of files that cannot be watched.
const watchPoll = 10 * time.Second

// AuthorityOptions configure an authority. The zero value of a field means its default.
type AuthorityOptions struct {
	// Store contains the signing certificate, its key and the roots, with the file names of Istio's
	// secret cacerts (ca-cert.pem, ca-key.pem, cert-chain.pem, root-cert.pem) or of cert-manager
	// (tls.crt, tls.key, ca.crt). If it is empty, a root is created. Required.
	Store       Store
	TrustDomain string        // default "cluster.local"
	Life        time.Duration // lifetime of a certificate if the request contains none; default 24h
	MaxLife     time.Duration // longest lifetime that is granted; default 24h, or Life if that is longer
	Hosts       Hosts         // hosts outside of Kubernetes whose certificates are accepted; default: none
	Log         *slog.Logger  // default: none
	// RootSpread is the time for which the next root is published before it signs certificates; default
	// [DefaultRootSpread].
	RootSpread time.Duration

	// Record keeps the roots that were removed from a store which outriderd may not write. They stay trusted
	// until the certificates they signed have expired. If Record is nil, a removed root is no longer trusted.
	Record Store
	// StoreTokenKey puts the key of [Authority.Tokens] into a file of the store, if outriderd may write
	// the store. Default: the key is derived from the authority's key.
	StoreTokenKey bool
	// ServesOnly lists the DNS names of this control plane if another authority has signed the
	// certificate in the store; see external.go. Then nothing is created or signed.
	ServesOnly []string
	// Waiting receives the error that describes what the store lacks, while [NewAuthority] waits for the
	// store; Waiting is called again when the error changes. If Waiting is nil, NewAuthority returns the
	// error instead of waiting.
	Waiting func(error)

	now func() time.Time // default time.Now
}

func (o AuthorityOptions) withDefaults() AuthorityOptions {
	o.TrustDomain = cmp.Or(o.TrustDomain, "cluster.local")
	o.Life = cmp.Or(o.Life, 24*time.Hour)
	o.MaxLife = cmp.Or(o.MaxLife, max(o.Life, defaultMaxLife))
	o.RootSpread = cmp.Or(o.RootSpread, DefaultRootSpread)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.now == nil {
		o.now = time.Now
	}
	return o
}

func (o AuthorityOptions) check() error {
	switch {
	case o.Store == nil:
		return errors.New("option Store: there must be a store of the authority's files")
	case o.Life < time.Second || o.MaxLife < time.Second:
		return fmt.Errorf("options Life %s, MaxLife %s: use 1s or more", o.Life, o.MaxLife)
	case o.RootSpread < 0:
		return fmt.Errorf("option RootSpread %s: use a time that is positive", o.RootSpread)
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
	current latest.Value[*signer]

	reading sync.Mutex // held while the store is read
	stored  Contents   // contents of the store from which current was made
	// recordDue is the next time at which a root in the record expires or may sign; zero: none.
	recordDue time.Time
}

func (a *Authority) loaded() *signer {
	s, _ := a.current.Get()
	return s
}

// NewAuthority loads the authority in a store, or creates one there. If that fails, it returns the error, or
// waits and tries again if o.Waiting is set.
func NewAuthority(ctx context.Context, o AuthorityOptions) (*Authority, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	a := &Authority{o: o, now: o.now}
	made, err := a.open(ctx)
	if err != nil && o.Waiting != nil {
		made, err = a.await(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	s := a.loaded()
	o.Log.Info("authority loaded", "store", o.Store.String(), "made", made, "root", s.root.Subject.String(), "not_after", s.cert.NotAfter)
	return a, nil
}

// await calls [Authority.open] again after changes of the store and every few seconds, until open succeeds or
// ctx ends.
func (a *Authority) await(ctx context.Context, err error) (made bool, _ error) {
	hints, stop := a.watch()
	defer stop()
	for last := ""; err != nil; made, err = a.open(ctx) {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err.Error() != last {
			last = err.Error()
			a.o.Waiting(err)
			a.o.Log.Warn("waiting for the authority", "store", a.o.Store.String(), "reason", err)
		}
		select {
		case <-hints:
		case <-time.After(retryEvery):
		case <-ctx.Done():
		}
	}
	return made, nil
}

// retryEvery is the pause after a failure, unless the store changes earlier.
const retryEvery = 5 * time.Second

// watch returns a channel that receives a value after changes of the store.
func (a *Authority) watch() (hints chan struct{}, stop func()) {
	hints = make(chan struct{}, 1)
	return hints, a.o.Store.Watch(func() {
		select {
		case hints <- struct{}{}:
		default: // a value is pending; the store will be read once it is received
		}
	})
}

// open reads the store, and first creates what is missing. If several control planes start at once with
// one store, one creates the authority and the others use it.
func (a *Authority) open(ctx context.Context) (made bool, err error) {
	a.reading.Lock()
	defer a.reading.Unlock()
	for ctx.Err() == nil {
		c, err := a.o.Store.Read(ctx)
		if err != nil {
			return false, fmt.Errorf("reading the authority's files: %w", err)
		}
		next, adds, err := a.complete(c)
		if err != nil {
			return false, fmt.Errorf("making an authority in %s: %w", a.o.Store, err)
		}
		if adds {
			err := a.o.Store.Update(ctx, next)
			if err != nil && !errors.Is(err, ErrConflict) {
				return false, fmt.Errorf("making an authority in %s: %w", a.o.Store, err)
			}
			made = err == nil
			continue
		}
		s, err := a.signer(ctx, c)
		if err != nil {
			return false, err
		}
		a.stored = c
		a.current.Set(s)
		return made, nil
	}
	return false, context.Cause(ctx)
}

// complete adds missing files to the contents of a store that outriderd may write.
func (a *Authority) complete(c Contents) (next Contents, adds bool, err error) {
	next = c.clone()
	if !c.Own || a.External() {
		return next, false, nil
	}
	if _, ok := find(c.Files); !ok {
		adds = true
		if err := addRoot(next.Files, a.o.TrustDomain, a.now(), rootLife); err != nil {
			return next, false, err
		}
	}
	if _, ok := c.Files[tokenKeyFile]; a.o.StoreTokenKey && !ok {
		adds = true
		if _, next.Files[tokenKeyFile], err = newKey(); err != nil {
			return next, false, err
		}
	}
	return next, adds, nil
}

// TrustDomain returns the trust domain of the certificates that the authority signs.
func (a *Authority) TrustDomain() string { return a.o.TrustDomain }

// Roots returns the trust anchors of the mesh. During a rotation they include the old and the new root.
func (a *Authority) Roots() []*x509.Certificate { return slices.Clone(a.loaded().roots) }

// Expiry returns the time at which the signing certificate expires.
func (a *Authority) Expiry() time.Time { return a.loaded().cert.NotAfter }

// RootsPEM returns the trust anchors in PEM.
func (a *Authority) RootsPEM() []byte { return wire.MarshalCertificates(a.loaded().roots...) }

// Changed returns a channel that is closed when the signing certificate or the roots change.
func (a *Authority) Changed() <-chan struct{} {
	_, changed := a.current.Get()
	return changed
}

// Reload reads the files again. If they are invalid, it returns an error and the authority does not change.
// If the store was deleted and outriderd may write it, the files are written again.
func (a *Authority) Reload(ctx context.Context) error {
	a.reading.Lock()
	defer a.reading.Unlock()
	if err := a.reload(ctx); err != nil {
		return fmt.Errorf("the authority stays as it was: %w", err)
	}
	return nil
}

// reload does the work of Reload; the caller holds a.reading.
func (a *Authority) reload(ctx context.Context) error {
	c, err := a.o.Store.Read(ctx)
	if err == nil && c.Version == "" && c.Own && a.stored.Own && !a.External() {
		c, err = a.restore(ctx)
	}
	if err != nil {
		return err
	}
	s, err := a.signer(ctx, c)
	if err != nil {
		return err
	}
	a.stored = c
	if s.same(a.loaded()) {
		return nil
	}
	a.current.Set(s)
	a.o.Log.Info("authority reloaded", "root", s.root.Subject.String(), "roots", len(s.roots), "not_after", s.cert.NotAfter)
	return nil
}

func (a *Authority) signer(ctx context.Context, c Contents) (*signer, error) {
	s, err := a.o.read(c.Files, a.now())
	if err != nil {
		return nil, err
	}
	return a.overlap(ctx, c, s)
}

// restore writes a deleted store again, unless another control plane has done so.
func (a *Authority) restore(ctx context.Context) (Contents, error) {
	err := a.o.Store.Update(ctx, Contents{Files: a.stored.Files, Own: true})
	if err != nil && !errors.Is(err, ErrConflict) {
		return Contents{}, err
	}
	if err == nil {
		a.o.Log.Warn("the authority's files were deleted, and are written again", "store", a.o.Store.String())
	}
	return a.o.Store.Read(ctx)
}

// longestWait limits the wait for the next step of a rotation. Timers stop while a machine is suspended, so
// after a longer wait the step might come after the root has expired.
const longestWait = time.Hour

// Run reloads the files when they change, and rotates the root when that is due, until ctx ends.
func (a *Authority) Run(ctx context.Context) error {
	hints, stop := a.watch()
	defer stop()
	for last := ""; ctx.Err() == nil; {
		wait := longestWait
		due, err := a.Advance(ctx) // Advance runs first, because the store may have changed before the watch began
		switch {
		case err != nil:
			if ctx.Err() == nil && err.Error() != last { // once per error: a partly written set of files is invalid
				last = err.Error()
				a.o.Log.Warn("authority not current", "reason", last)
			}
			wait = retryEvery
		case !due.IsZero():
			wait = min(wait, max(due.Sub(a.now()), 0))
			fallthrough
		default:
			last = ""
		}
		select {
		case <-hints:
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return nil
}

// A Certificate is a signed certificate with its chain.
type Certificate struct {
	Leaf *x509.Certificate
	// Chain is the response to a client, with one PEM block in each entry, as Istio expects: first the leaf,
	// then its intermediates, then the other roots of the mesh, and last the root of the leaf.
	Chain []string

	served [][]byte // sent by a TLS server: the leaf and its intermediates
}

// Sign signs a certificate for a public key and an identity. A life of zero means the default; a life beyond
// the maximum is shortened. It fails if the identity is invalid or of another trust domain.
func (a *Authority) Sign(public crypto.PublicKey, id Identity, life time.Duration) (*Certificate, error) {
	return a.sign(public, holder{Identity: id}, life)
}

// A holder is the subject of a certificate.
type holder struct {
	Identity
	host  string   // name of a host outside of Kubernetes; empty: the subject is no such host
	names []string // DNS names and addresses of a server
}

func (a *Authority) sign(public crypto.PublicKey, id holder, life time.Duration) (*Certificate, error) {
	if a.External() {
		return nil, errSignsNothing
	}
	if err := id.Check(); err != nil {
		return nil, err
	}
	if id.TrustDomain != a.o.TrustDomain {
		return nil, fmt.Errorf("this authority signs for trust domain %s, not for %s", a.o.TrustDomain, id.TrustDomain)
	}
	s, now := a.loaded(), a.now()
	if life <= 0 {
		life = a.o.Life
	}
	end := now.Add(min(life, a.o.MaxLife))
	if end.After(s.cert.NotAfter) {
		end = s.cert.NotAfter // beyond that time the chain would not verify
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

// Identify returns the identity in a chain of certificates, if the chain ends at a current root of the
// mesh, belongs to this trust domain and is valid now. A host must also still be in the mesh.
func (a *Authority) Identify(chain []*x509.Certificate) (Identity, error) {
	return a.identify(chain, nil)
}

// identify does the work of Identify. verified contains the chains that a TLS handshake has verified; nil:
// none.
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

// trusts reports whether a chain that a handshake has verified is still valid and ends at a current root. It
// does not verify the signatures again, which would take 0.08 ms.
func (a *Authority) trusts(leaf *x509.Certificate, verified [][]*x509.Certificate) bool {
	now, roots := a.now(), a.loaded().roots
	expired := func(c *x509.Certificate) bool { return now.Before(c.NotBefore) || now.After(c.NotAfter) }
	return slices.ContainsFunc(verified, func(chain []*x509.Certificate) bool {
		return chain[0].Equal(leaf) && !slices.ContainsFunc(chain, expired) && slices.ContainsFunc(roots, chain[len(chain)-1].Equal)
	})
}

// verify does the work of identify, except that it does not look up the host.
func (a *Authority) verify(chain []*x509.Certificate, verified [][]*x509.Certificate) (Identity, error) {
	if len(chain) == 0 {
		return Identity{}, errors.New("the client sent no certificate")
	}
	if !a.trusts(chain[0], verified) {
		_, err := chain[0].Verify(x509.VerifyOptions{
			Roots: a.loaded().pool, Intermediates: poolOf(chain[1:]), CurrentTime: a.now(),
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
