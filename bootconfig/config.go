package bootconfig

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A Config holds the configuration that is in use. Many goroutines may call its methods.
type Config[T any] struct {
	o       Options[T]
	store   *store // nil if the last good document is not stored
	current atomic.Pointer[Snapshot[T]]
	errors  chan error

	ctx     context.Context
	end     context.CancelFunc
	stopped sync.WaitGroup // waits for the refresh goroutine and the writer of the store
	fresh   chan struct{}  // closed once a document of the provider is in use

	mu        sync.Mutex
	listeners map[*listener[T]]struct{}

	// Only the refresh goroutine uses the fields below.
	seen     seen
	inUse    [sha256.Size]byte // hash of the document in use, if it is from the provider or the last good document
	late     <-chan fetched[T] // the result of a provider that did not return in time
	answered bool
}

// seen describes the last document that the provider returned.
type seen struct {
	version  string
	sum      [sha256.Size]byte
	rejected error // why the document is not in use
}

// ErrClosed is returned by [Config.Wait] if the Config is closed before a document arrives.
var ErrClosed = errors.New("bootconfig: closed")

// Open returns a Config with the best value that is available locally. It fetches in the background,
// until ctx ends or [Config.Close] is called, and does not wait for the provider. The error says which
// options are unusable.
func Open[T any](ctx context.Context, options Options[T]) (*Config[T], error) {
	o, err := options.complete()
	if err != nil {
		return nil, err
	}
	c := &Config[T]{
		o: o, errors: make(chan error, 64), fresh: make(chan struct{}), listeners: map[*listener[T]]struct{}{},
	}
	if o.LastGood != "" {
		c.store = newStore(o.LastGood, o.Schema, o.MaxSize)
	}
	first, err := c.start()
	if err != nil {
		return nil, fmt.Errorf("options of bootconfig: %w", err)
	}
	first.Generation, first.Since = 1, time.Now()
	c.current.Store(&first)

	c.ctx, c.end = context.WithCancel(ctx)
	if c.o.OnError != nil {
		go c.reportErrors()
	}
	if c.store != nil {
		c.stopped.Go(func() { c.store.run(c.ctx, c.report) })
	}
	c.stopped.Go(c.refresh)
	return c, nil
}

// start finds the initial value. It fails only if the program's own value ([Options].Embedded or Default) is
// invalid.
func (c *Config[T]) start() (Snapshot[T], error) {
	own, err := c.own()
	if err != nil {
		return own, err
	}
	var passed []error
	pass := func(from string, err error) {
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if r := (*RejectedError)(nil); !errors.As(err, &r) {
			err = &RejectedError{From: from, Err: err}
		}
		passed = append(passed, err)
		c.report(err)
	}
	for _, candidate := range []func() (Snapshot[T], error){c.lastGood, c.file} {
		s, err := candidate()
		if err == nil {
			s.Err = errors.Join(passed...)
			return s, nil
		}
		pass(s.From, err)
	}
	own.Err = errors.Join(passed...)
	return own, nil
}

// own returns the value of Options.Embedded or Options.Default. It fails if that value is invalid.
func (c *Config[T]) own() (s Snapshot[T], err error) {
	if c.o.Embedded != nil {
		v, err := c.o.value(c.o.Embedded)
		if err != nil {
			return s, fmt.Errorf("the value of Embedded: %w", err)
		}
		return Snapshot[T]{Value: v, Source: FromEmbedded}, nil
	}
	v := c.o.Default()
	if err := c.o.validate(v); err != nil {
		return s, fmt.Errorf("the value of Default: %w", err)
	}
	return Snapshot[T]{Value: v, Source: FromDefault}, nil
}

// lastGood returns the value of the last good document. If that document came from the same provider, the first
// fetch sends the document's version.
func (c *Config[T]) lastGood() (s Snapshot[T], err error) {
	if c.store == nil {
		return s, fs.ErrNotExist
	}
	s.From = c.o.LastGood
	if err := c.store.clean(); err != nil {
		c.report(err)
	}
	r, err := c.store.load()
	if err != nil {
		return s, err
	}
	if s.Value, err = c.o.value(r.document); err != nil {
		return s, err
	}
	s.Source, s.Confirmed = FromLastGood, r.Fetched
	c.inUse = sha256.Sum256(r.document)
	if r.From == c.o.Provider.String() {
		s.Version = r.Version
		c.seen = seen{version: r.Version, sum: c.inUse}
	}
	return s, nil
}

func (c *Config[T]) file() (s Snapshot[T], err error) {
	if c.o.File == "" {
		return s, fs.ErrNotExist
	}
	s.Source, s.From = FromFile, c.o.File
	data, err := readFile(c.o.File, c.o.MaxSize)
	if err != nil {
		return s, err
	}
	s.Value, err = c.o.value(data)
	return s, err
}

// Get returns the value in use. It does not block or allocate. Callers share the data to which the value refers,
// such as maps, and must not change it.
func (c *Config[T]) Get() T { return c.current.Load().Value }

// Snapshot returns the value in use with its source, version, age and current error. It does not block.
func (c *Config[T]) Snapshot() Snapshot[T] { return *c.current.Load() }

// Wait blocks until a document of the provider is in use, or the provider has confirmed the document in use;
// later calls return at once. If ctx ends first, or the Config is closed, the error wraps the cause and the last
// failure. The value in use stays usable.
func (c *Config[T]) Wait(ctx context.Context) error {
	select {
	case <-c.fresh: // even if ctx has ended
		return nil
	default:
	}
	var cause error
	select {
	case <-c.fresh:
		return nil
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-c.ctx.Done():
		cause = ErrClosed
	}
	if last := c.current.Load().Err; last != nil {
		return fmt.Errorf("waiting for %s: %w; last failure: %w", c.o.Provider, cause, last)
	}
	return fmt.Errorf("waiting for %s: %w", c.o.Provider, cause)
}

// Close stops fetching; functions of [Config.OnChange] are not called any more. It waits until the last good
// document is written (at most Options.Timeout), but not for functions of the program that are still running. The
// value in use stays readable. Close can be called more than once.
func (c *Config[T]) Close() {
	c.end()
	stopped := make(chan struct{})
	go func() { c.stopped.Wait(); close(stopped) }()
	limit := time.NewTimer(c.o.Timeout)
	defer limit.Stop()
	select {
	case <-stopped:
	case <-limit.C: // the disk hangs
	}
}

func (c *Config[T]) refresh() {
	p := pace{refresh: c.o.Refresh, wait: c.o.LongPoll, random: rand.Float64}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		changed, err := c.refreshOnce()
		timer.Reset(p.next(err, changed, time.Since(began)))
	}
}

type fetched[T any] struct {
	document Document
	sum      [sha256.Size]byte
	err      error // error of the provider
	value    T
	rejected error // error of the decoder, the validation or the size limit
}

// refreshOnce fetches once and applies the answer. It reports whether the document differs from the
// previous one, and returns an error if the provider did not answer.
func (c *Config[T]) refreshOnce() (changed bool, err error) {
	f := c.fetch()
	if c.ctx.Err() != nil {
		return false, c.ctx.Err()
	}
	if errors.Is(f.err, ErrUnchanged) && c.seen.version == "" {
		f.err = errors.New("unchanged is no answer to a request without a version")
	}
	switch {
	case errors.Is(f.err, ErrUnchanged):
	case f.err != nil:
		err := fmt.Errorf("fetching %s: %w", c.o.Provider, f.err)
		c.publish(func(s *Snapshot[T]) { s.Failures++; s.Err = err })
		c.report(err)
		return false, err
	case f.sum == c.inUse:
		if f.document.Version != c.seen.version {
			c.keep(f.document)
		}
		c.seen = seen{version: f.document.Version, sum: f.sum}
	case f.sum == c.seen.sum:
		c.seen.version = f.document.Version
	default:
		c.take(f)
		return true, nil
	}
	c.confirm()
	return false, nil
}

// confirm records that the provider's last document is still current.
func (c *Config[T]) confirm() {
	c.publish(func(s *Snapshot[T]) {
		s.Failures, s.Err = 0, c.seen.rejected
		if c.seen.rejected == nil {
			s.Source, s.From, s.Version, s.Confirmed = FromProvider, c.o.Provider.String(), c.seen.version, time.Now()
		}
	})
	if c.seen.rejected == nil {
		c.markFresh()
		if c.store != nil {
			signal(c.store.wake) // retry a failed write
		}
	}
}

// take puts a new document into use, or records why it is rejected.
func (c *Config[T]) take(f fetched[T]) {
	c.seen = seen{version: f.document.Version, sum: f.sum}
	if f.rejected != nil {
		c.seen.rejected = &RejectedError{From: c.o.Provider.String(), Version: f.document.Version, Err: f.rejected}
		c.report(c.seen.rejected)
		c.confirm()
		return
	}
	c.inUse = f.sum
	c.keep(f.document) // before publish: a caller that sees the document may call Close, which writes only documents that were passed to keep
	now := time.Now()
	c.publish(func(s *Snapshot[T]) {
		*s = Snapshot[T]{
			Value: f.value, Source: FromProvider, From: c.o.Provider.String(), Version: f.document.Version,
			Generation: s.Generation + 1, Since: now, Confirmed: now,
		}
	})
	c.notify()
	c.markFresh()
}

// keep passes a document to the store, which writes it in the background.
func (c *Config[T]) keep(d Document) {
	if c.store != nil {
		c.store.keep(record{header: header{From: c.o.Provider.String(), Version: d.Version, Fetched: time.Now()}, document: d.Data})
	}
}

func (c *Config[T]) markFresh() {
	if !c.answered {
		c.answered = true
		close(c.fresh)
	}
}

// publish replaces the snapshot by a changed copy. Only the refresh goroutine calls it.
func (c *Config[T]) publish(change func(*Snapshot[T])) {
	s := *c.current.Load()
	change(&s)
	c.current.Store(&s)
}

// fetch gets a document from the provider, decodes and validates it. It returns at most a second after the
// deadline, even if the provider, the decoder or the validation hangs.
func (c *Config[T]) fetch() fetched[T] {
	if c.late != nil {
		select {
		case <-c.late:
			c.late = nil
		default:
			return fetched[T]{err: errors.New("the call before has not returned yet, long after its deadline")}
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.o.Timeout+c.o.LongPoll)
	result := make(chan fetched[T], 1)
	r := Request{Version: c.seen.version, Wait: c.o.LongPoll, MaxSize: c.o.MaxSize}
	if r.Version == "" {
		r.Wait = 0
	}
	go func() {
		defer cancel()
		result <- c.load(ctx, r)
	}()
	select {
	case f := <-result:
		return f
	case <-ctx.Done():
	}
	// Wait a second longer, because the error of a provider that returns at its deadline says more than ours. If
	// the Config was closed, take a result that is already there.
	grace := time.NewTimer(time.Second)
	defer grace.Stop()
	select {
	case f := <-result:
		return f
	case <-c.ctx.Done():
	case <-grace.C:
	}
	c.late = result
	return fetched[T]{err: fmt.Errorf("no answer in time: %w", context.Cause(ctx))}
}

func (c *Config[T]) load(ctx context.Context, r Request) (f fetched[T]) {
	if f.document, f.err = c.call(ctx, r); f.err != nil {
		return f
	}
	f.sum = sha256.Sum256(f.document.Data)
	f.value, f.rejected = c.o.value(f.document.Data)
	return f
}

func (c *Config[T]) call(ctx context.Context, r Request) (d Document, err error) {
	defer caught("Fetch", &err)
	return c.o.Provider.Fetch(ctx, r)
}
