package ca

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outrider.dev/internal/base/wire"
)

// A rotating mesh consists of a store, a clock, and the certificates that were signed and have not expired.
type rotating struct {
	t      *testing.T
	lag    time.Duration // maximum age of a proxy's roots
	store  *memoryStore
	time   time.Time
	key    crypto.Signer
	signed []*x509.Certificate
	roots  map[time.Time][]*x509.Certificate // roots in the store, by time
	most   int                               // largest number of roots at one time
	right  map[string]bool                   // pairs of a certificate and roots that were verified before
}

func newRotating(t *testing.T) *rotating {
	return &rotating{t: t, lag: lag, key: ecKey(t), store: newMemoryStore(), time: time.Now(), roots: map[time.Time][]*x509.Certificate{}, right: map[string]bool{}}
}

func (r *rotating) now() time.Time { return r.time }

// start starts a replica.
func (r *rotating) start(edit ...func(*AuthorityOptions)) *Authority {
	r.t.Helper()
	return shared(r.t, r.store, func(o *AuthorityOptions) {
		o.now = r.now
		for _, e := range edit {
			e(o)
		}
	})
}

func (r *rotating) request() {
	r.t.Helper()
	if _, err := RequestRotation(r.t.Context(), r.store, r.time); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rotating) advance(a *Authority) {
	r.t.Helper()
	if due, err := a.Advance(r.t.Context()); err != nil || !due.After(r.time) {
		r.t.Fatalf("Advance = %v, %v; want a time after %v", due, err, r.time)
	}
}

// tick is the time by which the clock moves in one step. A proxy has new roots within the time lag.
const tick, lag = 10 * time.Minute, 50 * time.Minute

// check signs a certificate by a replica. It requires that every certificate which has not expired is trusted
// both by the current roots, and by a proxy with the oldest roots that a proxy may still have.
func (r *rotating) check(by *Authority) {
	r.t.Helper()
	r.signed = append(r.signed, must(by.Sign(r.key.Public(), shop, 0)).Leaf)
	c := must(r.store.Read(r.t.Context()))
	now := must(wire.ParseCertificates(c.Files["root-cert.pem"]))
	r.roots[r.time] = now
	r.most = max(r.most, len(now))
	for _, roots := range [][]*x509.Certificate{now, r.roots[r.time.Add(-r.lag)]} {
		if roots == nil {
			continue
		}
		pool := poolOf(roots)
		for i, leaf := range r.signed {
			with := sumOf(leaf) + string(wire.MarshalCertificates(roots...))
			if leaf.NotAfter.Before(r.time) || r.right[with] {
				continue
			}
			r.right[with] = true
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: r.time, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
				r.t.Fatalf("after %s certificate %d is not trusted: %v", r.time.Sub(r.began()), i, err)
			}
		}
	}
	r.signed = slices.DeleteFunc(r.signed, func(c *x509.Certificate) bool { return c.NotAfter.Before(r.time) })
}

func (r *rotating) began() time.Time {
	first := r.time
	for at := range r.roots { // any order: the earliest is taken
		if at.Before(first) {
			first = at
		}
	}
	return first
}

// state describes the content of the store.
func (r *rotating) state() string {
	c := must(r.store.Read(r.t.Context()))
	s := must(load(r.store, c.Files, r.time))
	next := must(nextRoot(c.Files))
	_, requested := c.Files[requestFile]
	return fmt.Sprintf("%d roots, next %v, requested %v, retiring %d", len(s.roots), next != nil, requested, len(must(parseRotation(c.Files)).Retire))
}

func (r *rotating) want(state string) {
	r.t.Helper()
	if got := r.state(); got != state {
		r.t.Fatalf("after %s: %s; want %s", r.time.Sub(r.began()), got, state)
	}
}

// While replicas lag and are restarted often, they rotate the root, and no certificate is refused at any
// time.
func TestTheRootIsRotatedWithOverlap(t *testing.T) {
	r := newRotating(t)
	all := []*Authority{r.start(), r.start(), r.start()}
	first := all[0].Roots()[0]
	for i := range 200 {
		if i == 10 {
			r.request()
		}
		if i%5 == 0 { // the third replica reads the store only every 50 minutes
			r.advance(all[2])
		}
		if i%7 == 3 {
			all[i%2] = r.start()
		}
		r.advance(all[i%2])
		r.check(all[i%3])
		switch elapsed := time.Duration(i-10) * tick; {
		case elapsed < 0:
			r.want("1 roots, next false, requested false, retiring 0")
		case elapsed < time.Hour:
			r.want("2 roots, next true, requested false, retiring 0")
		case elapsed < 26*time.Hour: // one hour to publish the root, one day for certificates, one hour for replicas that lag
			r.want("2 roots, next false, requested false, retiring 1")
		default:
			r.want("1 roots, next false, requested false, retiring 0")
		}
		r.time = r.time.Add(tick)
	}
	for _, a := range all {
		r.advance(a)
		if roots := a.Roots(); len(roots) != 1 || roots[0].Equal(first) {
			t.Errorf("a replica has %d roots, want the new one", len(roots))
		}
	}
}

// After a crash in any update, before or after the contents are stored, the rotation continues, and no step
// is done twice.
func TestACrashAtAnyStepOfARotation(t *testing.T) {
	for crash := 1; crash <= 4; crash++ { // the request and three steps
		for _, stored := range []bool{false, true} {
			t.Run(fmt.Sprintf("update %d, stored %v", crash, stored), func(t *testing.T) {
				r := newRotating(t)
				r.lag = time.Hour
				a := r.start()
				updates, crashed := 0, false
				r.store.around = func(update func() error) error {
					updates++
					if updates != crash {
						return update()
					}
					if crashed = true; stored {
						if err := update(); err != nil {
							return err
						}
					}
					return errors.New("crash")
				}
				requested := false
				for range 32 { // hours
					if !requested {
						_, err := RequestRotation(t.Context(), r.store, r.time)
						requested = err == nil || stored
					}
					if _, err := a.Advance(t.Context()); err != nil {
						if !strings.Contains(err.Error(), "crash") {
							t.Fatal(err)
						}
						a = r.start()
						r.check(a)
						continue // the clock does not advance
					}
					r.check(a)
					r.time = r.time.Add(time.Hour)
				}
				r.want("1 roots, next false, requested false, retiring 0")
				steps := 4
				if !stored {
					steps++ // the failed update is repeated
				}
				if r.most != 2 || !crashed || updates != steps {
					t.Errorf("at most %d roots, crashed %v, %d updates; want 2 roots and %d updates", r.most, crashed, updates, steps)
				}
			})
		}
	}
}

// If two replicas begin the same step, one of them succeeds and the other uses the result.
func TestReplicasDoEachStepOnce(t *testing.T) {
	r := newRotating(t)
	one, two := r.start(), r.start()
	r.request()
	between := false
	r.store.around = func(update func() error) error {
		if !between { // replica two is faster than replica one
			between = true
			r.advance(two)
		}
		return update()
	}
	for _, state := range []string{"2 roots, next true, requested false, retiring 0", "2 roots, next false, requested false, retiring 1", "1 roots, next false, requested false, retiring 0"} {
		version := r.store.version
		between = false
		r.advance(one)
		r.want(state)
		if r.store.version != version+1 {
			t.Errorf("%s: %d updates, want 1", state, r.store.version-version)
		}
		if !bytes.Equal(one.RootsPEM(), two.RootsPEM()) || !one.loaded().cert.Equal(two.loaded().cert) {
			t.Errorf("%s: the replicas differ", state)
		}
		r.time = r.time.Add(26 * time.Hour)
	}
}

// Replicas rotate the root without a request, by their own timers. The channel of Changed is closed at each
// step.
func TestTheRootIsRotatedBeforeItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 1000 * time.Hour
		files := map[string][]byte{}
		if err := addRoot(files, "cluster.local", time.Now(), life); err != nil {
			t.Fatal(err)
		}
		s := newMemoryStore()
		s.set(Contents{Files: files, Own: true})
		a, b := shared(t, s, nil), shared(t, s, nil)
		run(t, a)
		run(t, b)
		first := a.Roots()[0]
		sleep := func(d time.Duration, roots int, old bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			for _, one := range []*Authority{a, b} {
				if got := one.Roots(); len(got) != roots || one.loaded().cert.Equal(first) != old {
					t.Errorf("after %s: %d roots, signed by the first %v; want %d, %v", time.Since(first.NotBefore), len(got), !old, roots, old)
				}
			}
		}
		sleep(life*4/5-time.Minute, 1, true)
		changed := a.Changed()
		sleep(2*time.Minute, 2, true)
		<-changed
		serving := must(a.NewServing(shop, []string{"localhost"}, 0))
		changed = a.Changed()
		sleep(time.Hour, 2, false)
		<-changed
		if cert := must(serving.Certificate()); cert.Leaf.CheckSignatureFrom(first) == nil {
			t.Error("the control plane's own certificate is of the old root")
		}
		sleep(24*time.Hour, 2, false)
		changed = a.Changed()
		sleep(time.Hour, 1, false)
		<-changed
		sleep(200*time.Hour, 1, false)
		if _, err := a.Identify([]*x509.Certificate{must(b.Sign(ecKey(t).Public(), shop, 0)).Leaf}); err != nil {
			t.Error(err)
		}
	})
}

// A host receives roots only with its certificate, so the next root signs only after each host has renewed
// its own.
func TestTheRootMovesWhenEachHostHasIt(t *testing.T) {
	for name, tt := range map[string]struct {
		hosts hosts
		moves time.Duration
	}{
		"no hosts": {hosts{}, time.Hour},
		"a host":   {hosts{{1}: {"shop", "vm-1", "app"}}, 48 * time.Hour},
	} {
		r := newRotating(t)
		a := r.start(func(o *AuthorityOptions) { o.Hosts, o.MaxLife = tt.hosts, 48*time.Hour })
		r.advance(a)
		r.request()
		r.advance(a)
		c := must(r.store.Read(t.Context()))
		if got := must(parseRotation(c.Files)).Move.Sub(r.time); got.Round(time.Second) != tt.moves {
			t.Errorf("%s: it moves after %s, want %s", name, got, tt.moves)
		}
	}
}

// The old root is kept for the longest lifetime that any replica allows.
func TestTheOldRootWaitsForTheLongestLife(t *testing.T) {
	r := newRotating(t)
	long := r.start(func(o *AuthorityOptions) { o.MaxLife = 720 * time.Hour })
	r.advance(long)
	short := r.start()
	r.request()
	r.advance(short)
	r.check(long)
	r.time = r.time.Add(time.Hour)
	r.advance(short) // the next root signs from now on
	r.want("2 roots, next false, requested false, retiring 1")
	r.time = r.time.Add(720 * time.Hour)
	r.advance(short)
	r.want("2 roots, next false, requested false, retiring 1")
	r.time = r.time.Add(time.Hour)
	r.advance(short)
	r.want("1 roots, next false, requested false, retiring 0")
}

func TestARequestDuringARotationIsForAnotherOne(t *testing.T) {
	r := newRotating(t)
	a := r.start()
	r.request()
	r.advance(a)
	r.request()
	r.advance(a)
	r.want("2 roots, next true, requested true, retiring 0")
	r.time = r.time.Add(time.Hour)
	r.advance(a)
	r.want("3 roots, next true, requested false, retiring 1")
	for range 60 {
		r.time = r.time.Add(time.Hour)
		r.advance(a)
		r.check(a)
	}
	r.want("1 roots, next false, requested false, retiring 0")
}

func TestARequestIsMadeOnce(t *testing.T) {
	r := newRotating(t)
	root := r.start().Roots()[0].Subject.String()
	for _, want := range []bool{true, false} {
		got, err := RequestRotation(t.Context(), r.store, r.time)
		if err != nil || got != (RotationRequest{root, want}) {
			t.Errorf("RequestRotation = %+v, %v", got, err)
		}
	}
	again := false
	r = newRotating(t)
	r.start()
	r.store.around = func(update func() error) error {
		if !again { // the store changes meanwhile
			again = true
			r.store.set(r.store.is)
		}
		return update()
	}
	if got, err := RequestRotation(t.Context(), r.store, r.time); err != nil || !got.Requested {
		t.Errorf("after a conflict: %+v, %v", got, err)
	}
	if _, err := RequestRotation(t.Context(), newMemoryStore(), r.time); err == nil || !strings.Contains(err.Error(), "memoryStore/ca-cert.pem: there is no such file") {
		t.Errorf("without an authority: %v", err)
	}
}

// A root that outriderd did not create is neither rotated nor written.
func TestARootThatIsNotOurs(t *testing.T) {
	ours := newRotating(t)
	made := ours.start().stored.Files
	intermediate := map[string][]byte{"tls.crt": made["ca-cert.pem"], "tls.key": made["ca-key.pem"], "ca.crt": made["root-cert.pem"]}
	for name, c := range map[string]Contents{
		"a store that may not be written": {Files: made},
		"cert-manager's files":            {Files: intermediate, Own: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotating(t)
			r.store.set(c)
			var log bytes.Buffer
			a := r.start(func(o *AuthorityOptions) { o.StoreTokenKey, o.Log = false, slog.New(slog.NewTextHandler(&log, nil)) })
			if _, err := RequestRotation(t.Context(), r.store, r.time); !errors.Is(err, errNotOurRoot) {
				t.Errorf("RequestRotation = %v", err)
			}
			if due, err := a.Advance(t.Context()); err != nil || !due.IsZero() {
				t.Errorf("Advance = %v, %v; want nothing to do", due, err)
			}
			with := c.clone()
			with.Files[requestFile] = nil
			r.store.set(with)
			if _, err := a.Advance(t.Context()); !errors.Is(err, errNotOurRoot) {
				t.Errorf("with a request: %v", err)
			}
			sign(t, a, shop, 0)
		})
	}
}

func TestFilesOfARotationThatCannotBeUsed(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(map[string][]byte)
		want string
	}{
		"no JSON":           {func(f map[string][]byte) { f[rotationFile] = []byte("{") }, "rotation.json: unexpected end"},
		"a life that isn't": {func(f map[string][]byte) { f[rotationFile] = []byte(`{"longestLifeSeconds": -1}`) }, "rotation.json: longestLifeSeconds -1: want 0 to"},
		"no next key":       {func(f map[string][]byte) { delete(f, nextKeyFile) }, "next-key.pem: "},
		"no certificate":    {func(f map[string][]byte) { f[nextCertFile] = []byte("x") }, "next-cert.pem: "},
		"another's key":     {func(f map[string][]byte) { f[nextKeyFile] = f["ca-key.pem"] }, "next-cert.pem: want one certificate, of the key in next-key.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotating(t)
			a := r.start()
			r.request()
			r.advance(a)
			c := must(r.store.Read(t.Context()))
			tt.edit(c.Files)
			r.store.set(c)
			r.time = r.time.Add(time.Hour)
			if _, err := a.Advance(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Advance = %v, want %q", err, tt.want)
			}
			r.check(a)
		})
	}
	// Without rotation.json the next root signs an hour after it was created.
	r := newRotating(t)
	a := r.start()
	r.request()
	r.advance(a)
	c := must(r.store.Read(t.Context()))
	delete(c.Files, rotationFile)
	r.store.set(c)
	r.time = r.time.Add(time.Hour - time.Minute)
	r.advance(a)
	r.want("2 roots, next true, requested false, retiring 0")
	r.time = r.time.Add(2 * time.Minute)
	r.advance(a)
	r.want("2 roots, next false, requested false, retiring 1")
}

// The steps are the same if the store is a folder.
func TestTheRootInAFolderIsRotated(t *testing.T) {
	now := time.Now()
	dir := Directory(t.TempDir())
	a := shared(t, dir, func(o *AuthorityOptions) { o.now, o.StoreTokenKey = func() time.Time { return now }, false })
	first := a.Roots()[0]
	if got := must(RequestRotation(t.Context(), dir, now)); !got.Requested {
		t.Error("not requested")
	}
	for _, after := range []time.Duration{0, time.Hour, 25 * time.Hour} {
		now = now.Add(after)
		if _, err := a.Advance(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if roots := a.Roots(); len(roots) != 1 || roots[0].Equal(first) || len(must(dir.Read(t.Context())).Files) != 3 {
		t.Errorf("%d roots, files %v", len(roots), must(dir.Read(t.Context())).Files)
	}
}
