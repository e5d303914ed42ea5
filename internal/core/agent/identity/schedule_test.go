package identity

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	server "outrider.dev/internal/core/controlplane/ca"
)

// A fake is a keeper without a network, on synctest's clock.
type fake struct {
	*Keeper
	authority *server.Authority
	begin     time.Time

	mu     sync.Mutex // protects the fields below
	answer func(public crypto.PublicKey) ([]*x509.Certificate, error)
	times  []time.Duration // of the requests, since the start
	keys   map[string]bool // of the requests
	shown  []bool          // whether a request was authenticated by a certificate
	life   time.Duration
}

func newFake(t *testing.T, change func(*Options)) *fake {
	t.Helper()
	f := &fake{authority: newAuthority(t), begin: time.Now(), life: 24 * time.Hour, keys: map[string]bool{}}
	roots := filepath.Join(t.TempDir(), "roots.pem")
	put(t, roots, f.authority.RootsPEM())
	o := Options{Identity: shop, Dir: filepath.Join(t.TempDir(), "certs"), Client: Client{Address: "a:1", RootFile: roots}}
	if change != nil {
		change(&o)
	}
	f.Keeper = must(NewKeeper(o))
	f.chance = func() float64 { return 0.5 } // no jitter
	f.watch = func(time.Duration, func(), ...string) func() { return func() {} }
	f.request = func(_ context.Context, c Call) ([]*x509.Certificate, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.times = append(f.times, time.Since(f.begin))
		f.shown = append(f.shown, c.Certificate != nil)
		block, _ := pem.Decode(c.CSR)
		csr := must(x509.ParseCertificateRequest(block.Bytes))
		f.keys[string(csr.RawSubjectPublicKeyInfo)] = true
		return f.answer(csr.PublicKey)
	}
	f.answer = f.sign
	return f
}

// sign responds as a control plane that works.
func (f *fake) sign(public crypto.PublicKey) ([]*x509.Certificate, error) {
	return []*x509.Certificate{must(f.authority.Sign(public, shop, f.life)).Leaf, f.authority.Roots()[0]}, nil
}

func (f *fake) answers(with func(crypto.PublicKey) ([]*x509.Certificate, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = with
}

func fails(err error) func(crypto.PublicKey) ([]*x509.Certificate, error) {
	return func(crypto.PublicKey) ([]*x509.Certificate, error) { return nil, err }
}

func (f *fake) start(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
}

func TestTimesOfRequests(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		fail   error
		life   time.Duration
		during time.Duration
		want   []time.Duration
		keys   int
	}{
		"each half life": {life: 24 * time.Hour, during: 40 * time.Hour,
			want: []time.Duration{0, 12 * time.Hour, 24 * time.Hour, 36 * time.Hour}, keys: 4},
		"later with a smaller grace": {change: func(o *Options) { o.GraceRatio = 0.25 }, life: 4 * time.Hour, during: 7 * time.Hour,
			want: []time.Duration{0, 3 * time.Hour, 6 * time.Hour}, keys: 3},
		"twice as late after each failure, with the same key": {fail: errors.New("no"), during: 33 * time.Second, keys: 1,
			want: []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond,
				3100 * time.Millisecond, 6300 * time.Millisecond, 12700 * time.Millisecond, 22700 * time.Millisecond, 32700 * time.Millisecond}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, tt.change)
				f.life = tt.life
				if tt.fail != nil {
					f.answers(fails(tt.fail))
				}
				f.start(t)
				time.Sleep(tt.during)
				synctest.Wait()
				f.mu.Lock()
				defer f.mu.Unlock()
				// A certificate expires at a whole second, so the times of requests are not exact.
				for i := range f.times {
					if tt.fail == nil {
						f.times[i] = f.times[i].Round(time.Minute)
					}
				}
				if diff := cmp.Diff(tt.want, f.times); diff != "" {
					t.Errorf("requests at (-want +got):\n%s", diff)
				}
				if len(f.keys) != tt.keys {
					t.Errorf("%d keys, want %d", len(f.keys), tt.keys)
				}
			})
		})
	}
}

// While the API server is unreachable, no renewal succeeds. The pods of a mesh then do not all retry every ten
// seconds, as for a first certificate. They retry the more often the closer the expiry is.
func TestPausesOfARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, nil)
		f.life = 24 * time.Hour
		f.start(t)
		f.answers(fails(errors.New("the API server is away")))
		time.Sleep(24*time.Hour - time.Second)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		longest, last := time.Duration(0), 24*time.Hour-f.times[len(f.times)-1]
		for i := 2; i < len(f.times); i++ {
			longest = max(longest, f.times[i]-f.times[i-1])
		}
		if n := len(f.times); n > 250 || longest > longestWait || last > time.Minute {
			t.Errorf("%d requests in 12 hours, at most %s apart, the last one %s before the end", n, longest, last)
		}
		t.Logf("%d requests in 12 hours, at most %s apart, the last one %s before the end", len(f.times), longest, last)
	})
}

func TestExpiryIsReportedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, nil)
		f.life = time.Hour
		f.start(t)
		first := f.State()
		if first.Phase != Have {
			t.Fatal(first)
		}
		f.answers(fails(fault(Unreachable, "the control plane a:1 is not reached")))
		time.Sleep(time.Until(first.NotAfter)/2 + time.Second)
		synctest.Wait()
		s := f.State()
		if s.Phase != Failing || !s.Usable(time.Now()) {
			t.Errorf("at half its life: %s", s)
		}
		time.Sleep(time.Until(first.NotAfter) - time.Millisecond)
		synctest.Wait()
		if s := f.State(); s.Phase != Failing {
			t.Errorf("just before its end: %s", s)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if s := f.State(); s.Phase != Expired || s.Usable(time.Now()) || s.Fault.Kind != Unreachable ||
			!strings.Contains(s.String(), "certificate expired at") || !strings.Contains(s.String(), "not reached") {
			t.Errorf("at its end: %s", s)
		}
		f.answers(f.sign)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := f.State(); s.Phase != Have {
			t.Errorf("when requests succeed again: %s", s)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, shown := range f.shown {
			if valid := i > 0 && f.begin.Add(f.times[i]).Before(first.NotAfter); shown != valid {
				t.Errorf("the request after %s shows a certificate: %t; there is a valid one: %t", f.times[i], shown, valid)
			}
		}
	})
}

func TestPausesAreSpread(t *testing.T) {
	b := Backoff{100 * time.Millisecond, 10 * time.Second}
	tests := []struct {
		failures int
		chance   float64
		want     time.Duration
	}{
		{1, 0, 75 * time.Millisecond}, {1, 0.5, 100 * time.Millisecond}, {2, 1, 250 * time.Millisecond},
		{1000, 0, 7500 * time.Millisecond}, {1000, 1, 10 * time.Second},
	}
	for _, tt := range tests {
		if got := b.pause(tt.failures, tt.chance); got != tt.want {
			t.Errorf("pause(%d, %v) = %s, want %s", tt.failures, tt.chance, got, tt.want)
		}
	}
}

func TestUnusableCertificatesAreRejected(t *testing.T) {
	other := shop
	other.Namespace = "bank"
	tests := map[string]struct {
		id       ID
		otherKey bool // the certificate is for another key
		alone    bool // the certificate is signed by another authority, whose root the chain lacks
		want     string
	}{
		"another identity":     {id: other, want: "it names [spiffe://cluster.local/ns/bank/sa/app] and not"},
		"another key":          {id: shop, otherKey: true, want: "another key than that of the request"},
		"an unknown authority": {id: shop, alone: true, want: "unknown authority"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, nil)
				f.answers(func(public crypto.PublicKey) ([]*x509.Certificate, error) {
					if tt.otherKey {
						public = must(newKey(P256)).Public()
					}
					by := f.authority
					if tt.alone {
						by = newAuthority(t)
					}
					return []*x509.Certificate{must(by.Sign(public, tt.id, 0)).Leaf}, nil
				})
				f.start(t)
				if s := f.State(); s.Phase != Failing || s.Fault.Kind != Broken || !strings.Contains(s.Fault.Reason, tt.want) {
					t.Errorf("the state is %s, want %q", s, tt.want)
				}
				if s := f.State(); !s.NotAfter.IsZero() {
					t.Error("it was accepted")
				}
				f.answers(f.sign)
				time.Sleep(time.Second)
				synctest.Wait()
				if s := f.State(); s.Phase != Have {
					t.Errorf("after a good answer: %s", s)
				}
			})
		})
	}
}

func TestACertificateNamesThisWorkloadAndNothingElse(t *testing.T) {
	a := newAuthority(t)
	key := must(newKey(P256))
	for name, change := range map[string]func(*x509.Certificate){
		"no identity":  func(c *x509.Certificate) { c.URIs = nil },
		"two":          func(c *x509.Certificate) { c.URIs = append(c.URIs, planeURL()) },
		"another":      func(c *x509.Certificate) { c.URIs = []*url.URL{planeURL()} },
		"from now on":  func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) },
		"until before": func(c *x509.Certificate) { c.NotAfter = time.Now() },
	} {
		h := &held{key: key, chain: []*x509.Certificate{must(a.Sign(key.Public(), shop, 0)).Leaf}}
		if err := h.fits(shop, a.Roots(), time.Now()); err != nil {
			t.Fatal(err)
		}
		change(h.leaf())
		if err := h.fits(shop, a.Roots(), time.Now()); err == nil || !strings.Contains(err.Error(), "it names") && !strings.Contains(err.Error(), "is a clock wrong") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func planeURL() *url.URL { return must(url.Parse(planeID)) }
