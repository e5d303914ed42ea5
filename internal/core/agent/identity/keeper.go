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
	"sync"
	"time"

	"outrider.dev/internal/base/wire"
)

const (
	// watchPoll is how often files are looked at where they cannot be watched.
	watchPoll = 10 * time.Second
	// longestWait bounds a wait: timers stand still while a machine sleeps, and the
	// certificate's life does not.
	longestWait = 5 * time.Minute
)

// A Keeper keeps one workload's certificate.
type Keeper struct {
	o Options

	// Replaced in tests.
	request func(context.Context, Call) ([]*x509.Certificate, error)
	watch   func(poll time.Duration, changed func(), paths ...string) (stop func())
	chance  func() float64

	// Of Run alone.
	key      crypto.Signer       // of the request that has no answer yet
	have     *held               // what Envoy has
	learned  []*x509.Certificate // roots from the control plane
	roots    []byte              // as the client's files had them last
	token    []byte              // as the last request had it
	failures int                 // in a row
	due      time.Time           // of the next request

	mu    sync.Mutex
	state State // written by Run alone
}

// NewKeeper checks the options. Nothing is touched before [Keeper.Run].
func NewKeeper(o Options) (*Keeper, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Keeper{
		o: o, request: o.Client.CreateCertificate, watch: wire.WatchFiles, chance: rand.Float64,
		state: State{Phase: Starting},
	}, nil
}

// Prepare makes the directories, and gives Envoy what an earlier agent of this pod left
// if it is still good. It is what Run begins with; a caller that starts Envoy at the same time
// calls it first.
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

// MakeDirs makes the directories. The error is an [*OptionError] for the first that cannot be
// written to.
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

// writable makes a directory, and a file in it for a moment.
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

// plain is an error without the path.
func plain(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// reuse takes what an earlier agent of this pod left, if it is still good: a restart of
// the agent then does not wait.
func (k *Keeper) reuse() error {
	if k.have != nil || k.o.Provided != (Provided{}) {
		return nil
	}
	k.learned = readRoots(k.o.Dir)
	h, err := readHeld(k.o.Dir)
	if err != nil {
		return nil // none, or none of use: a new one is requested
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

// Run keeps the certificate until ctx ends. It returns an error only if it cannot begin.
func (k *Keeper) Run(ctx context.Context) error {
	if err := k.Prepare(); err != nil {
		return err
	}
	hints := make(chan struct{}, 1)
	hint := func() {
		select {
		case hints <- struct{}{}:
		default: // one is waiting, and the files are read after it
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

// wait is the time to the next request, or to the expiry.
func (k *Keeper) wait(now time.Time) time.Duration {
	wait := min(longestWait, k.due.Sub(now))
	if k.have != nil && now.Before(k.have.leaf().NotAfter) {
		wait = min(wait, k.have.leaf().NotAfter.Sub(now))
	}
	return max(wait, 0)
}

// step does what is due.
func (k *Keeper) step(ctx context.Context) {
	err := k.follow()
	if k.failures > 0 && k.newToken() {
		k.due = time.Now()
	}
	if err == nil && time.Now().Before(k.due) {
		s := k.state
		if s.Phase == Starting {
			s = State{Phase: Have} // it was there before
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

// renewalPauses is how many pauses fit into what is left of a certificate's life.
const renewalPauses = 20

// backoff has longer pauses while Envoy has a certificate: the control plane, or the API server
// behind it, may be away because it has too much to do, and all pods of a mesh renew.
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

// renewal is when to request the next certificate: at half of the time that was left
// when this one came. Without the clock's monotonic half, which a sleeping machine stops.
func (k *Keeper) renewal() time.Time {
	h := k.have
	life := h.leaf().NotAfter.Sub(h.born)
	grace := k.o.GraceRatio + k.o.GraceJitter*(2*k.chance()-1)
	after := max(time.Duration(float64(life)*(1-grace)), k.o.Backoff.Base)
	return h.born.Round(0).Add(after)
}

// newToken returns whether the token differs from that of the last request.
func (k *Keeper) newToken() bool {
	raw, _ := read(k.o.Client.TokenFile) // no file is no token
	return !bytes.Equal(raw, k.token)
}

// follow takes over roots that have changed. A root that is gone is trusted no longer,
// unless our own certificate still ends at it: then a new one is due at once.
func (k *Keeper) follow() error {
	roots, f := k.o.Client.roots()
	if f != nil {
		return nil // half written, or not mounted: the trusted roots stay
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
		// Kept until there is an answer: a token that is bound to one key is then valid
		// for the next request.
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

// shown is the certificate that Envoy has, which authenticates its renewal; nil if it has expired.
func (k *Keeper) shown() *tls.Certificate {
	if k.have == nil || !time.Now().Before(k.have.leaf().NotAfter) {
		return nil
	}
	return k.have.certificate()
}

// accept checks an answer and gives it to Envoy: the roots first, so that Envoy trusts its
// peers' new certificates before it shows its own.
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
