package identity

import (
	"context"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/process"
)

var (
	parse      = ca.ParseIdentity
	identityOf = ca.IdentityOf
)

func TestAFirstCertificate(t *testing.T) {
	p := newPlane(t)
	for _, kind := range []KeyKind{P256, P384, RSA2048} {
		t.Run(string(kind), func(t *testing.T) {
			o := p.options(t)
			o.Key, o.OutputDir = kind, filepath.Join(t.TempDir(), "out")
			w := run(t, o)
			if s := <-w.states; s.Phase != Asking {
				t.Errorf("the first state is %s", s)
			}
			s := w.phase(t, Have)
			h := w.onDisk(t)
			if id, err := identityOf(h.leaf()); err != nil || id != shop {
				t.Errorf("the certificate names %v, %v", id, err)
			}
			if len(h.chain) != 1 || h.leaf().SerialNumber.Text(16) != s.Serial || !s.Usable(time.Now()) || s.Reused {
				t.Errorf("a chain of %d, serial %x; the state says %+v", len(h.chain), h.leaf().SerialNumber, s)
			}
			if _, isRSA := h.key.(*rsa.PrivateKey); isRSA != (kind == RSA2048) {
				t.Errorf("the key is a %T", h.key)
			}
			if got := w.rootsOnDisk(t); got != string(p.authority.RootsPEM()) {
				t.Errorf("the roots are %s", got)
			}
			want := map[string]string{ChainFile: string(wire.MarshalCertificates(h.chain...)), KeyFile: string(must(wire.MarshalKey(h.key))), RootFile: string(p.authority.RootsPEM())}
			for name, content := range want {
				if diff := cmp.Diff(content, text(t, o.OutputDir, name)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			for _, dir := range []string{o.Dir, o.OutputDir} {
				if mode := must(os.Stat(dir)).Mode().Perm(); mode != 0o700 {
					t.Errorf("%s has mode %o", dir, mode)
				}
				for _, f := range must(os.ReadDir(dir)) {
					if mode := must(f.Info()).Mode().Perm(); mode != 0o600 {
						t.Errorf("%s has mode %o", f.Name(), mode)
					}
				}
			}
		})
	}
}

// renewAtOnce requests the next certificate shortly after the last: a certificate's life is in
// whole seconds, and waiting for half of it would show nothing here. TestTimesOfRequests checks the
// times.
func renewAtOnce(o *Options) {
	o.Life, o.GraceRatio, o.Backoff.Base = time.Hour, 1, 20*time.Millisecond
}

// sent returns a channel that reports each delivery to Envoy, in order.
func sent(o *Options) chan string {
	out := make(chan string, 100)
	o.OnRoots = func(roots []byte) { out <- string(roots) }
	o.OnCertificate = func(chain, key []byte) { out <- string(key) + string(chain) }
	return out
}

func TestEnvoyGetsWhatIsStoredRootsFirst(t *testing.T) {
	o := newPlane(t).options(t)
	out := sent(&o)
	if err := must(NewKeeper(o)).Prepare(); err != nil || len(out) != 0 {
		t.Errorf("before there is a certificate: %v, %d secrets", err, len(out))
	}
	w := run(t, o)
	w.phase(t, Have)
	w.stop()
	want := []string{text(t, o.Dir, storedRoots), text(t, o.Dir, storedCertificate)}
	taken := func() (all []string) {
		for len(out) > 0 {
			all = append(all, <-out)
		}
		return all
	}
	if diff := cmp.Diff(want, taken()); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if err := must(NewKeeper(o)).Prepare(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, taken()); diff != "" {
		t.Errorf("sent by the next agent, before its first request (-want +got):\n%s", diff)
	}
}

func TestCertificatesAreRenewed(t *testing.T) {
	p := newPlane(t)
	o := p.options(t)
	renewAtOnce(&o)
	w := run(t, o)
	serials := map[string]bool{}
	var stored string
	for len(serials) < 4 || !serials[stored] { // the stored certificate may be newer than the state
		s := w.phase(t, Have)
		if serials[s.Serial] {
			t.Fatal("the same certificate twice")
		}
		serials[s.Serial] = true
		h := w.onDisk(t)
		if stored = h.leaf().SerialNumber.Text(16); len(serials) > 10 {
			t.Fatalf("on disk is %s, which was in no state", stored)
		}
		if err := h.fits(shop, p.authority.Roots(), h.leaf().NotBefore); err != nil {
			t.Errorf("on disk is %s: %v", stored, err)
		}
	}
}

// An agent without a setting for the lifetime leaves the choice to the control plane.
func TestTheControlPlaneHasTheDefaultLife(t *testing.T) {
	p := newPlane(t)
	p.stop()
	p.authority = must(ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(p.dir), Life: time.Hour}))
	p.start(t, "127.0.0.1:0")
	for requested, want := range map[time.Duration]time.Duration{0: time.Hour, 2 * time.Hour: 2 * time.Hour} {
		o := p.options(t)
		o.Life = requested
		w := run(t, o)
		w.phase(t, Have)
		if leaf := w.onDisk(t).leaf(); time.Until(leaf.NotAfter) > want || time.Until(leaf.NotAfter) < want-time.Minute {
			t.Errorf("requested %s, it ends at %s; want a life of %s", requested, leaf.NotAfter, want)
		}
	}
}

func TestTheOldCertificateStaysUntilTheNewOneIsThere(t *testing.T) {
	p := newPlane(t)
	o := p.options(t)
	renewAtOnce(&o)
	o.Backoff.Max = 200 * time.Millisecond
	w := run(t, o)
	had := map[string]bool{w.phase(t, Have).Serial: true}
	p.stop()
	s := w.until(t, "a failed renewal", func(s State) bool {
		had[s.Serial] = had[s.Serial] || s.Phase == Have
		return isFault(Unreachable)(s)
	})
	if s.Phase != Failing || !had[s.Serial] || !s.Usable(time.Now()) || !strings.Contains(s.String(), "not renewed yet: the control plane") {
		t.Errorf("the state is %+v: %s", s, s)
	}
	old := s.Serial
	if got := w.onDisk(t).leaf().SerialNumber.Text(16); got != old {
		t.Errorf("on disk is %s", got)
	}
	p.start(t, p.address)
	if s = w.phase(t, Have); s.Serial == old {
		t.Error("it has the old one")
	}
}

func TestWithoutATokenItWaitsForOne(t *testing.T) {
	p := newPlane(t)
	o := p.options(t)
	o.Backoff = Backoff{time.Hour, time.Hour} // so that only the file's change can lead to a retry
	right := must(os.ReadFile(o.Client.TokenFile))
	if err := os.Remove(o.Client.TokenFile); err != nil {
		t.Fatal(err)
	}
	w := run(t, o)
	s := w.phase(t, Failing)
	if s.Fault.Kind != NoToken || !strings.Contains(s.String(), "there is no token to request a certificate with: open "+o.Client.TokenFile) {
		t.Errorf("the state is %s", s)
	}
	put(t, o.Client.TokenFile, []byte("an-unknown-token"))
	s = w.until(t, "a refusal", isFault(Rejected))
	if !strings.Contains(s.Fault.Reason, "refuses this identity: the token is of a kind") {
		t.Errorf("the state is %s", s)
	}
	put(t, o.Client.TokenFile, []byte(p.token(t, ID{TrustDomain: "cluster.local", Namespace: "bank", ServiceAccount: "app"})))
	s = w.until(t, "another refusal", func(s State) bool { return isFault(Rejected)(s) && strings.Contains(s.Fault.Reason, "bank") })
	if !strings.Contains(s.Fault.Reason, "its sender is spiffe://cluster.local/ns/bank/sa/app") {
		t.Errorf("the state is %s", s)
	}
	put(t, o.Client.TokenFile, right)
	w.phase(t, Have)
	if n := p.requests.Load(); n != 3 {
		t.Errorf("%d requests, want one for each token", n)
	}
}

func TestACertificateRenewsItselfWithoutAToken(t *testing.T) {
	p := newPlane(t)
	o := p.options(t)
	renewAtOnce(&o)
	w := run(t, o)
	w.phase(t, Have)
	if err := os.Remove(o.Client.TokenFile); err != nil {
		t.Fatal(err)
	}
	last := w.State().Serial
	for range 2 { // the first renewal may have read the token before it was removed
		last = w.until(t, "another certificate", func(s State) bool { return s.Phase == Have && s.Serial != last }).Serial
	}
}

func TestRootsAreFollowed(t *testing.T) {
	p := newPlane(t)
	newer := t.TempDir()
	next := must(ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(newer)}))
	o := p.options(t)
	w := run(t, o)
	first := w.phase(t, Have)
	old := p.authority.RootsPEM()

	both := append(append([]byte{}, old...), next.RootsPEM()...)
	put(t, filepath.Join(p.dir, "root-cert.pem"), both)
	put(t, o.Client.RootFile, both)
	process.Eventually(t, "both roots", func() bool { return w.rootsOnDisk(t) == string(both) })
	if s := w.State(); s.Serial != first.Serial {
		t.Error("a new certificate, which was not needed")
	}

	p.rotate(t, newer, "ca-key.pem", "ca-cert.pem")
	put(t, o.Client.RootFile, next.RootsPEM())
	w.until(t, "a certificate of the new root", func(s State) bool { return s.Phase == Have && s.Serial != first.Serial })
	if err := w.onDisk(t).leaf().CheckSignatureFrom(next.Roots()[0]); err != nil {
		t.Error(err)
	}
	// The old root stays trusted until the control plane no longer sends it.
	p.rotate(t, newer, "root-cert.pem")
	w.stop()
	w = run(t, o)
	s := w.phase(t, Have)
	if !s.Reused {
		t.Errorf("the state is %+v", s)
	}
}

func TestAHostLearnsTheNextRootFromTheControlPlane(t *testing.T) {
	p := newPlane(t)
	newer := t.TempDir()
	next := must(ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(newer)}))
	o := p.options(t)
	put(t, filepath.Join(p.dir, "root-cert.pem"), append(p.authority.RootsPEM(), next.RootsPEM()...))
	if err := p.authority.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	renewAtOnce(&o)
	w := run(t, o)
	w.phase(t, Have)
	p.rotate(t, newer, "ca-key.pem", "ca-cert.pem", "root-cert.pem") // the host's file does not change
	process.Eventually(t, "a certificate of the next root", func() bool {
		return w.onDisk(t).leaf().CheckSignatureFrom(next.Roots()[0]) == nil
	})
}

func TestAWrongRootIsReportedAndReplaced(t *testing.T) {
	p := newPlane(t)
	o := p.options(t)
	o.Backoff = Backoff{time.Hour, time.Hour}
	right := must(os.ReadFile(o.Client.RootFile))
	put(t, o.Client.RootFile, newAuthority(t).RootsPEM())
	w := run(t, o)
	if s := w.phase(t, Failing); s.Fault.Kind != Untrusted || !strings.Contains(s.Fault.Reason, "unknown root") {
		t.Errorf("the state is %s", s)
	}
	if err := os.Remove(o.Client.RootFile); err != nil {
		t.Fatal(err)
	}
	put(t, o.Client.RootFile, right)
	w.phase(t, Have)
}

func TestAControlPlaneThatHangs(t *testing.T) {
	p := newPlane(t)
	p.hang.Store(true)
	o := p.options(t)
	o.Timeout = 200 * time.Millisecond
	w := run(t, o)
	if s := w.phase(t, Failing); s.Fault.Kind != Unreachable {
		t.Errorf("the state is %s", s)
	}
	p.hang.Store(false)
	w.phase(t, Have)
}

func TestAStoredCertificateIsUsedAtOnce(t *testing.T) {
	p := newPlane(t)
	o := p.options(t)
	w := run(t, o)
	first := w.phase(t, Have)
	w.stop()
	p.stop()
	again := func(t *testing.T, change func(o *Options)) State {
		o := o
		dir := t.TempDir()
		for _, name := range stored {
			put(t, filepath.Join(dir, name), []byte(text(t, o.Dir, name)))
		}
		o.Dir = dir
		change(&o)
		out := sent(&o)
		w := run(t, o)
		s := w.until(t, "the first result", func(s State) bool { return s.Phase != Asking })
		if _, err := os.Stat(filepath.Join(dir, storedCertificate)); (err == nil) != s.Reused || (len(out) > 0) != s.Reused {
			t.Errorf("reused: %v, %d secrets sent, and the file: %v", s.Reused, len(out), err)
		}
		return s
	}
	t.Run("as it is", func(t *testing.T) {
		s := again(t, func(*Options) {})
		if s.Phase != Have || s.Serial != first.Serial || !s.Reused {
			t.Errorf("the state is %+v", s)
		}
	})
	for name, change := range map[string]func(*Options){
		"of another identity": func(o *Options) { o.Identity.ServiceAccount = "other" },
		"of a root that is not trusted": func(o *Options) {
			o.Client.RootFile = filepath.Join(o.Dir, "other.pem")
			put(t, o.Client.RootFile, newAuthority(t).RootsPEM())
			os.Remove(filepath.Join(o.Dir, storedRoots))
		},
		"no PEM":    func(o *Options) { put(t, filepath.Join(o.Dir, storedCertificate), []byte("x")) },
		"not there": func(o *Options) { os.Remove(filepath.Join(o.Dir, storedCertificate)) },
		"without its key": func(o *Options) {
			put(t, filepath.Join(o.Dir, storedCertificate), wire.MarshalCertificates(p.authority.Roots()...))
		},
		"with another's key": func(o *Options) {
			_, chain := pem.Decode([]byte(text(t, o.Dir, storedCertificate)))
			put(t, filepath.Join(o.Dir, storedCertificate), append(must(wire.MarshalKey(must(newKey(P256)))), chain...))
		},
		"expired": func(o *Options) {
			key := must(newKey(P256))
			c := must(p.authority.Sign(key.Public(), shop, time.Second))
			time.Sleep(time.Until(c.Leaf.NotAfter)) // lifetimes are whole seconds
			put(t, filepath.Join(o.Dir, storedCertificate), append(must(wire.MarshalKey(key)), c.Chain[0]...))
		},
	} {
		t.Run("not if it is "+name, func(t *testing.T) {
			if s := again(t, change); s.Phase != Failing || s.Reused || !s.NotAfter.IsZero() {
				t.Errorf("the state is %+v", s)
			}
		})
	}
}

func TestProvidedCertificatesAreFollowed(t *testing.T) {
	authority := newAuthority(t)
	mount := t.TempDir()
	provide := func(life time.Duration) string {
		key := must(newKey(P256))
		c := must(authority.Sign(key.Public(), shop, life))
		put(t, filepath.Join(mount, "key.pem"), must(wire.MarshalKey(key)))
		put(t, filepath.Join(mount, "cert-chain.pem"), []byte(c.Chain[0]))
		return c.Leaf.SerialNumber.Text(16)
	}
	o := Options{Dir: filepath.Join(t.TempDir(), "certs"), Provided: Provided{
		Chain: filepath.Join(mount, "cert-chain.pem"), Key: filepath.Join(mount, "key.pem"), Roots: filepath.Join(mount, "root-cert.pem")}}
	w := run(t, o)
	if s := w.phase(t, Failing); !strings.Contains(s.String(), "no such file") {
		t.Errorf("the state is %s", s)
	}
	put(t, o.Provided.Roots, authority.RootsPEM())
	first := provide(time.Hour)
	w.until(t, "the first", func(s State) bool { return s.Phase == Have && s.Serial == first })
	put(t, o.Provided.Key, must(wire.MarshalKey(must(newKey(P256)))))
	s := w.phase(t, Failing)
	if !s.Usable(time.Now()) || !strings.Contains(s.String(), "the key is another certificate's") || w.onDisk(t).leaf().SerialNumber.Text(16) != first {
		t.Errorf("the state is %s", s)
	}
	second := provide(2 * time.Second)
	w.until(t, "the second", func(s State) bool { return s.Phase == Have && s.Serial == second })
	if got := w.onDisk(t).leaf().SerialNumber.Text(16); got != second {
		t.Errorf("on disk is %s", got)
	}
	w.phase(t, Expired)
	third := provide(time.Hour)
	w.until(t, "the third", func(s State) bool { return s.Phase == Have && s.Serial == third })
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"OutputDir": func(o *Options) { o.OutputDir = o.Dir + "/." },
		"Identity":  func(o *Options) { o.Identity.Namespace = "" },
	} {
		o := Options{Identity: shop, Dir: "certs", Client: Client{Address: "a:1", RootFile: "r"}}
		change(&o)
		if _, err := NewKeeper(o); err == nil || !strings.HasPrefix(err.Error(), "option "+want+":") {
			t.Errorf("NewKeeper = %v, want it to name %s", err, want)
		}
	}
}

func TestADirectoryThatCannotBeWritten(t *testing.T) {
	o := newPlane(t).options(t)
	o.Dir = filepath.Join(o.Client.TokenFile, "certs") // inside of a file
	if err := must(NewKeeper(o)).Run(context.Background()); err == nil || !strings.HasPrefix(err.Error(), "option Dir: "+o.Dir) {
		t.Errorf("Run = %v", err)
	}
	o.Dir, o.OutputDir = t.TempDir(), "/proc/nope"
	var wrong *OptionError
	if err := must(NewKeeper(o)).MakeDirs(); !errors.As(err, &wrong) || wrong.Option != "OutputDir" {
		t.Errorf("MakeDirs = %v", err)
	}
	o.OutputDir = t.TempDir()
	if err := must(NewKeeper(o)).MakeDirs(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(o.OutputDir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
