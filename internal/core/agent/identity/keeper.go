package identity

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"outrider.dev/internal/base/wire"
)

const (
	// watchPoll is the interval between checks of files that cannot be watched.
	watchPoll = 10 * time.Second
	// longestWait bounds a wait: timers stand still while a machine sleeps, but the certificate's
	// lifetime goes on.
	longestWait = 5 * time.Minute
)

// A Keeper gets and renews one workload's certificate.
type Keeper struct {
	o Options

	// Replaced in tests:
	request func(context.Context, Call) ([]*x509.Certificate, error)
	watch   func(poll time.Duration, changed func(), paths ...string) (stop func())
	chance  func() float64

	// Used only by Run:
	key      crypto.Signer       // of the request that has no response yet
	have     *held               // the certificate that Envoy has
	learned  []*x509.Certificate // roots from the control plane
	roots    []byte              // content of the client's files at the last read
	token    []byte              // the token of the last request
	failures int                 // consecutive
	due      time.Time           // time of the next request

	state atomic.Pointer[State] // replaced only by Run
}

// NewKeeper checks the options. It has no effect before [Keeper.Run].
func NewKeeper(o Options) (*Keeper, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	k := &Keeper{o: o, request: o.Client.CreateCertificate, watch: wire.WatchFiles, chance: rand.Float64}
	k.state.Store(&State{Phase: Starting})
	return k, nil
}

// Prepare makes the directories, and gives Envoy the certificate and roots that an earlier agent of this pod
// left, if they are still valid. Run begins with Prepare. A caller that starts Envoy concurrently with Run must
// call Prepare before it starts either.
func (k *Keeper) Prepare() error {
	if err := k.MakeDirs(); err != nil {
		return err
	}
	err := k.reuse()
	if k.have == nil {
		// A stored certificate that cannot be used must not stay.
		err = os.Remove(filepath.Join(k.o.Dir, storedCertificate))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the directory of certificates: %w", err)
	}
	return nil
}

// MakeDirs makes the directories. The error is an [*OptionError] for the first directory that is
// not writable.
func (k *Keeper) MakeDirs() error {
	for _, dir := range []struct{ option, path string }{{"Dir", k.o.Dir}, {"OutputDir", k.o.OutputDir}} {
		if dir.path == "" {
			continue
		}
		if err := writable(dir.path); err != nil {
			return wrong(dir.option, "%s: %v; name a directory that can be written to", dir.path, plain(err))
		}
	}
	return nil
}

// writable makes a directory and tests it with a temporary file.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}

// plain returns an error without its path.
func plain(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// reuse takes the certificate and roots of an earlier agent of this pod, if they are still valid,
// so that a restarted agent does not wait.
func (k *Keeper) reuse() error {
	if k.have != nil || k.o.Provided != (Provided{}) {
		return nil
	}
	k.learned = readRoots(k.o.Dir)
	h, err := readHeld(k.o.Dir)
	if err != nil {
		return nil // no stored certificate, or an unusable one: a new one is requested
	}
	now := time.Now()
	roots, f := k.o.Client.roots()
	all := union(roots, k.learned)
	if f != nil || h.fits(k.o.Identity, all, now) != nil {
		return nil
	}
	h.reused, h.born = true, now
	k.have = h
	k.due = k.renewal()
	return errors.Join(k.giveRoots(all), k.giveCertificate(h))
}

// Run gets and renews the certificate until ctx ends. It returns an error only if it cannot start.
func (k *Keeper) Run(ctx context.Context) error {
	if err := k.Prepare(); err != nil {
		return err
	}
	hints := make(chan struct{}, 1)
	hint := func() {
		select {
		case hints <- struct{}{}:
		default: // an event is waiting already; the files are read after it
		}
	}
	step, paths := k.step, []string{k.o.Client.RootFile, k.o.Client.TokenFile}
	if p := k.o.Provided; p != (Provided{}) {
		step, paths = k.take, []string{p.Chain, p.Key, p.Roots}
	}
	defer k.watch(watchPoll, hint, paths...)()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		step(ctx)
		timer.Reset(k.wait(time.Now()))
		select {
		case <-ctx.Done():
		case <-hints:
		case <-timer.C:
		}
	}
	return nil
}

// wait returns the time until the next request, or until the certificate expires.
func (k *Keeper) wait(now time.Time) time.Duration {
	wait := min(longestWait, k.due.Sub(now))
	if k.have != nil && now.Before(k.have.leaf().NotAfter) {
		wait = min(wait, k.have.leaf().NotAfter.Sub(now))
	}
	return max(wait, 0)
}

// step takes over changed roots, and requests a certificate if that is due.
func (k *Keeper) step(ctx context.Context) {
	err := k.follow()
	if k.failures > 0 && k.newToken() {
		k.due = time.Now()
	}
	if err == nil && time.Now().Before(k.due) {
		s := k.State()
		if s.Phase == Starting {
			s = State{Phase: Have} // the certificate came from an earlier agent
		}
		k.publish(State{Phase: s.Phase, Fault: s.Fault, Retry: s.Retry}) // the certificate may have expired
		return
	}
	if k.have == nil && k.failures == 0 {
		k.publish(State{Phase: Asking})
	}
	if err == nil {
		err = k.renew(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		k.failures, k.due = 0, k.renewal()
		k.publish(State{Phase: Have})
		return
	}
	k.failures++
	k.due = time.Now().Round(0).Add(k.backoff().pause(k.failures, k.chance()))
	k.publish(State{Phase: Failing, Fault: asFault(err), Retry: k.due})
}

// renewalPauses limits the pauses between failed renewals: at least this many fit into the rest of a
// certificate's lifetime.
const renewalPauses = 20

// backoff returns longer pauses while Envoy has a certificate: the control plane, or the API server behind it,
// may be overloaded, and all pods of a mesh renew.
func (k *Keeper) backoff() Backoff {
	b := k.o.Backoff
	if k.have != nil {
		left := time.Until(k.have.leaf().NotAfter)
		b.Max = max(b.Max, min(left/renewalPauses, longestWait))
	}
	return b
}

func asFault(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return fault(Broken, "%v", err)
}

// renewal returns the time of the next request: by default, when half of the lifetime that the
// certificate had on arrival is over. It uses the wall clock, since the monotonic clock stops while
// a machine sleeps.
func (k *Keeper) renewal() time.Time {
	h := k.have
	life := h.leaf().NotAfter.Sub(h.born)
	grace := k.o.GraceRatio + k.o.GraceJitter*(2*k.chance()-1)
	after := max(time.Duration(float64(life)*(1-grace)), k.o.Backoff.Base)
	return h.born.Round(0).Add(after)
}

// newToken reports whether the token differs from that of the last request.
func (k *Keeper) newToken() bool {
	raw, _ := read(k.o.Client.TokenFile) // a missing file counts as no token
	return !bytes.Equal(raw, k.token)
}

// follow takes over changed roots. A removed root is no longer trusted, unless the control plane sent it with
// our certificate. If our certificate does not chain to the new roots, a new one is due at once.
func (k *Keeper) follow() error {
	roots, f := k.o.Client.roots()
	if f != nil {
		return nil // the file is half written, or not mounted: keep the trusted roots
	}
	text := wire.MarshalCertificates(roots...)
	if bytes.Equal(text, k.roots) {
		return nil
	}
	first := k.roots == nil
	k.roots = text
	if k.failures > 0 {
		k.due = time.Now()
	}
	if k.have == nil {
		return nil
	}
	if !first && k.have.fits(k.o.Identity, roots, time.Now()) != nil {
		k.due = time.Now()
	}
	if err := k.giveRoots(union(roots, k.learned)); err != nil {
		return fault(Broken, "writing the trusted roots: %v", err)
	}
	return nil
}

// renew requests a certificate and gives it to Envoy.
func (k *Keeper) renew(ctx context.Context) error {
	if k.o.Client.TokenFile != "" {
		k.token, _ = read(k.o.Client.TokenFile)
	}
	if k.key == nil {
		// The key is reused until there is a response: a token that is bound to a key then remains valid for
		// the next request.
		key, err := newKey(k.o.Key)
		if err != nil {
			return err
		}
		k.key = key
	}
	csr, err := newCSR(k.key, k.o.Identity)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, k.o.Timeout)
	defer cancel()
	chain, err := k.request(ctx, Call{CSR: csr, Life: k.o.Life, Roots: k.learned, Certificate: k.shown()})
	if err != nil {
		return err
	}
	return k.accept(chain)
}

// shown returns Envoy's certificate, which authenticates its renewal; nil if it has expired.
func (k *Keeper) shown() *tls.Certificate {
	if k.have == nil || !time.Now().Before(k.have.leaf().NotAfter) {
		return nil
	}
	return k.have.certificate()
}

// accept checks a response and passes it to Envoy: the roots first, so that Envoy trusts its peers'
// new certificates before it shows its own.
func (k *Keeper) accept(chain []*x509.Certificate) error {
	roots, f := k.o.Client.roots()
	if f != nil {
		return f
	}
	next := &held{key: k.key, born: time.Now()}
	var learned []*x509.Certificate
	for i, c := range chain {
		if i > 0 && isRoot(c) {
			learned = append(learned, c)
			continue
		}
		next.chain = append(next.chain, c)
	}
	if err := next.fits(k.o.Identity, union(roots, learned), next.born); err != nil {
		return fault(Broken, "the control plane sends a certificate that cannot be used: %v", err)
	}
	if err := k.giveRoots(union(roots, learned)); err != nil {
		return fault(Broken, "writing the trusted roots: %v", err)
	}
	if err := k.giveCertificate(next); err != nil {
		return fault(Broken, "writing the certificate: %v", err)
	}
	k.have, k.learned, k.key = next, learned, nil
	return nil
}
