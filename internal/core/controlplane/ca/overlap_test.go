package ca

import (
	"crypto/rand"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/base/wire"
)

// certManager returns the files that cert-manager writes for an intermediate below a root.
func certManager(t *testing.T, root *signer, name string, at time.Time, life time.Duration) map[string][]byte {
	t.Helper()
	key := ecKey(t)
	form := &x509.Certificate{SerialNumber: must(newSerial()), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: at.Add(-time.Hour), NotAfter: at.Add(life)}
	form.Subject.CommonName = name
	between := must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, form, root.cert, key.Public(), root.key))))
	return map[string][]byte{"tls.crt": wire.MarshalCertificates(between), "tls.key": must(wire.MarshalKey(key)), "ca.crt": wire.MarshalCertificates(root.cert)}
}

// rootAt returns a root that outriderd did not create.
func rootAt(t *testing.T, at time.Time, life time.Duration) *signer {
	t.Helper()
	files := map[string][]byte{}
	if err := addRoot(files, "cluster.local", at, life); err != nil {
		t.Fatal(err)
	}
	return must(load(newMemoryStore(), files, at))
}

// An overlapping mesh has a store that outriderd may not write, a store for the record of its roots, and a
// clock.
type overlapping struct {
	*rotating
	record *memoryStore
	chains map[string]bool                   // DER of all intermediates that have signed
	seen   map[time.Time][]*x509.Certificate // roots of the first replica, by time
}

func newOverlapping(t *testing.T, files map[string][]byte) *overlapping {
	o := &overlapping{rotating: newRotating(t), record: newMemoryStore(), chains: map[string]bool{}, seen: map[time.Time][]*x509.Certificate{}}
	o.store.set(Contents{Files: files})
	return o
}

func (o *overlapping) replica() *Authority {
	o.t.Helper()
	return o.start(func(a *AuthorityOptions) { a.StoreTokenKey, a.Record = false, o.record })
}

// pass advances the clock by d. At each tick each replica signs a certificate. Each certificate that has not
// expired must be trusted by each replica and, if late is set, by a proxy with the oldest roots that a proxy
// may still have.
func (o *overlapping) pass(d time.Duration, late bool, replicas ...*Authority) {
	o.t.Helper()
	for end := o.time.Add(d); o.time.Before(end); o.time = o.time.Add(tick) {
		var bundles [][]*x509.Certificate
		for _, a := range replicas {
			if due := must(a.Advance(o.t.Context())); !due.IsZero() && !due.After(o.time) {
				o.t.Fatalf("due at %v, which is over", due)
			}
			bundles = append(bundles, a.Roots())
		}
		o.seen[o.time] = bundles[0]
		if old := o.seen[o.time.Add(-o.lag)]; old != nil && late {
			bundles = append(bundles, old)
		}
		for _, a := range replicas {
			o.signed = append(o.signed, must(a.Sign(o.key.Public(), shop, 0)).Leaf)
			for _, issuer := range a.loaded().chain {
				o.between(issuer)
			}
		}
		o.signed = slices.DeleteFunc(o.signed, func(c *x509.Certificate) bool { return c.NotAfter.Before(o.time) })
		for _, roots := range bundles {
			o.verify(roots)
		}
	}
}

// between stores an intermediate, because verify needs the issuer of each leaf.
func (o *overlapping) between(c *x509.Certificate) { o.chains[string(c.Raw)] = true }

func (o *overlapping) verify(roots []*x509.Certificate) {
	o.t.Helper()
	intermediates := x509.NewCertPool()
	for raw := range maps.Keys(o.chains) { // any order: they go into a pool
		intermediates.AddCert(must(x509.ParseCertificate([]byte(raw))))
	}
	bundle := string(wire.MarshalCertificates(roots...))
	for _, leaf := range o.signed {
		with := sumOf(leaf) + bundle
		if o.right[with] {
			continue
		}
		o.right[with] = true
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: poolOf(roots), Intermediates: intermediates, CurrentTime: o.time, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			o.t.Fatalf("at %v a certificate of %v is not trusted: %v", o.time, leaf.Issuer, err)
		}
	}
}

// If an intermediate is replaced by another one below the same root, running replicas use it at once.
// Certificates of the old intermediate are trusted until they expire.
func TestAnIntermediateIsReplaced(t *testing.T) {
	begin := time.Now()
	root := rootAt(t, begin, rootLife)
	o := newOverlapping(t, certManager(t, root, "first", begin, 30*24*time.Hour))
	one, two := o.replica(), o.replica()
	o.pass(2*time.Hour, true, one, two)
	o.store.set(Contents{Files: certManager(t, root, "second", o.time, 30*24*time.Hour)})
	o.pass(tick, true, one, two)
	for _, a := range []*Authority{one, two} {
		c := must(a.Sign(o.key.Public(), shop, 0))
		if c.Leaf.Issuer.CommonName != "second" || len(c.served) != 2 {
			t.Errorf("signed by %v, served with %d: want the new intermediate, at once", c.Leaf.Issuer, len(c.served))
		}
	}
	o.pass(26*time.Hour, true, one, two)
	if got := one.Roots(); len(got) != 1 {
		t.Errorf("%d roots: it is the same", len(got))
	}
}

// If another program replaces a root's certificate, key and roots at once, no certificate is refused. Finally
// the old root is removed, even if replicas were restarted.
func TestARootOfAnotherIsReplacedAtOnce(t *testing.T) {
	begin := time.Now()
	o := newOverlapping(t, certManager(t, rootAt(t, begin, rootLife), "first", begin, 30*24*time.Hour))
	one, two := o.replica(), o.replica()
	o.pass(2*time.Hour, true, one, two)

	o.store.set(Contents{Files: certManager(t, rootAt(t, o.time, rootLife), "second", o.time, 30*24*time.Hour)})
	o.pass(tick, true, one, two)
	if got := must(one.Sign(o.key.Public(), shop, 0)).Leaf.Issuer.CommonName; got != "first" || len(one.Roots()) != 2 {
		t.Errorf("%s signs, %d roots; want the first, and both: proxies have the new root later", got, len(one.Roots()))
	}
	status := must(StatusOf(t.Context(), o.store, o.record, o.time))
	if next, ok := status.Root(RootNext); !ok || !next.Until.Equal(o.record.moves(t)) || len(status.Roots) != 2 {
		t.Errorf("status %+v", status)
	}
	o.pass(DefaultRootSpread, true, one, two)
	if got := must(two.Sign(o.key.Public(), shop, 0)).Leaf.Issuer.CommonName; got != "second" {
		t.Errorf("%s signs, after the new root was published for %s", got, DefaultRootSpread)
	}
	two = o.replica() // a restarted replica
	if len(two.Roots()) != 2 {
		t.Errorf("%d roots after a restart, want both", len(two.Roots()))
	}
	o.record.remove() // replicas write the record again from their memory
	o.pass(27*time.Hour, true, one, two)
	for _, a := range []*Authority{one, two} {
		if got := a.Roots(); len(got) != 1 || got[0].Subject.String() != must(StatusOf(t.Context(), o.store, o.record, o.time)).Roots[0].Subject {
			t.Errorf("%d roots when all certificates of the old one have ended", len(got))
		}
	}
	if r := must(parseRotation(o.record.is.Files)); len(r.Retire) != 0 || !r.Move.IsZero() {
		t.Errorf("the record still has %+v", r)
	}
}

// moves returns the time at which the new root in a record may sign.
func (s *memoryStore) moves(t *testing.T) time.Time {
	t.Helper()
	return must(parseRotation(s.is.Files)).Move
}

// If the root is replaced while no replica runs, the record still contains the old root. The replica that
// starts next signs with the new root at once, because it has no other key.
func TestARootIsReplacedWhileNoReplicaRuns(t *testing.T) {
	begin := time.Now()
	o := newOverlapping(t, certManager(t, rootAt(t, begin, rootLife), "first", begin, 30*24*time.Hour))
	o.pass(time.Hour, true, o.replica())
	o.store.set(Contents{Files: certManager(t, rootAt(t, o.time, rootLife), "second", o.time, 30*24*time.Hour)})
	a := o.replica()
	if len(a.Roots()) != 2 {
		t.Fatalf("%d roots, want both", len(a.Roots()))
	}
	if got := must(a.Sign(o.key.Public(), shop, 0)).Leaf.Issuer.CommonName; got != "second" {
		t.Errorf("%s signs", got)
	}
	o.pass(27*time.Hour, false, a)
	if len(a.Roots()) != 1 {
		t.Errorf("%d roots in the end", len(a.Roots()))
	}
}

// An old root is removed from the record when it expires. A root that returns to the store is not removed.
func TestRootsOfARecord(t *testing.T) {
	begin := time.Now()
	short, other := rootAt(t, begin, 3*time.Hour), rootAt(t, begin, rootLife)
	o := newOverlapping(t, certManager(t, short, "short", begin, 2*time.Hour))
	a := o.replica()
	o.store.set(Contents{Files: certManager(t, other, "long", begin, 48*time.Hour)})
	o.pass(tick, true, a)
	r := must(parseRotation(o.record.is.Files))
	if until := r.Retire[sumOf(short.cert)]; !until.Equal(short.cert.NotAfter.UTC()) {
		t.Errorf("it is kept until %v, and ends at %v", until, short.cert.NotAfter)
	}
	o.store.set(Contents{Files: certManager(t, short, "short", begin, 2*time.Hour)})
	o.pass(tick, true, a)
	r = must(parseRotation(o.record.is.Files))
	if _, ok := r.Retire[sumOf(short.cert)]; ok || len(r.Retire) != 1 {
		t.Errorf("the one that is back is to be kept, the other to go: %v", r.Retire)
	}
	o.record.fails = ErrConflict
	if err := a.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "reading the record of roots") {
		t.Errorf("a record that cannot be read: %v", err)
	}
	if len(a.Roots()) != 2 {
		t.Errorf("%d roots then", len(a.Roots()))
	}
}
