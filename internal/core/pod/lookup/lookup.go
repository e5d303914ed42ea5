// Package lookup finds the command of an image: the ENTRYPOINT and CMD of its configuration, which it fetches
// from the registry by digest. The kubelet uses them for a container that sets no command, and a gate that wraps
// the command must know them in advance.
//
// The package fetches only a few small documents and no layer. It checks the digest and the size of each. An
// image for several platforms must have the same command on all Linux platforms, since the node is not known yet.
//
//	lookup.go       the resolver and its cache
//	image.go        from a name to a command
//	document.go     the formats of indexes, manifests and configurations
//	registry.go     requests to one registry; redirects
//	credentials.go  the file with credentials
//	dial.go         the addresses that requests may go to
package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distribution/reference"

	"outrider.dev/internal/core/pod/inject/imagecmd"
)

// Options holds the settings of a [Resolver]. The zero value of a field means its default.
type Options struct {
	// Config is a file with credentials in the format of Docker's config.json. It is read for each look-up, so
	// that it can be replaced at any time. Default: requests are anonymous.
	Config string

	// Insecure lists registries (HOST or HOST:PORT) that are contacted over plain HTTP and may be on this
	// machine. Default: none.
	Insecure []string

	// Networks lists private networks in which registries may be, in addition to the internet. Default: none.
	Networks []netip.Prefix

	// Proxy returns the proxy for a request, like the field of [http.Transport]. Default: no proxy.
	Proxy func(*http.Request) (*url.URL, error)

	Timeout time.Duration // limit for a look-up with all its requests; default 3s
	Entries int           // maximum number of cached results; default 512

	Transport http.RoundTripper // default: a transport that does not connect to this machine, link-local addresses or networks that are not allowed
}

// Times for which results are cached. A result for a digest does not change and has no limit.
const (
	tagLife     = time.Minute
	failureLife = 30 * time.Second
)

// A Resolver looks up commands of images. It is safe for concurrent use.
type Resolver struct {
	o      Options
	client *http.Client
	slots  chan struct{} // semaphore for concurrent requests

	mu    sync.Mutex
	cache map[string]*entry

	lookups, failed atomic.Uint64
}

// New returns a resolver. It fails if an option is invalid or the file with credentials cannot be read.
func New(o Options) (*Resolver, error) {
	o.Timeout = cmp.Or(o.Timeout, 3*time.Second)
	o.Entries = cmp.Or(o.Entries, 512)
	if o.Transport == nil {
		o.Transport = newTransport(o.Insecure, o.Networks, o.Proxy)
	}
	if _, err := readConfig(o.Config); err != nil {
		return nil, err
	}
	for _, host := range o.Insecure {
		if !isRegistry(host) {
			return nil, fmt.Errorf("registry %q: want HOST or HOST:PORT", host)
		}
	}
	r := &Resolver{o: o, cache: map[string]*entry{}, slots: make(chan struct{}, maxRequests)}
	r.client = &http.Client{Transport: o.Transport, CheckRedirect: checkRedirect}
	return r, nil
}

// Counters are the numbers of look-ups since the resolver was created.
type Counters struct {
	Lookups uint64 // look-ups in a registry
	Failed  uint64 // look-ups that found no command
}

// Counters returns the current numbers of look-ups.
func (r *Resolver) Counters() Counters { return Counters{r.lookups.Load(), r.failed.Load()} }

// Commands looks up several images concurrently. If a look-up fails, the result's Why contains the error.
func (r *Resolver) Commands(ctx context.Context, images []string) map[string]imagecmd.Command {
	out := make([]imagecmd.Command, len(images))
	var all sync.WaitGroup
	for i, image := range images {
		all.Go(func() {
			var err error
			if out[i], err = r.Command(ctx, image); err != nil {
				out[i].Why = err.Error()
			}
		})
	}
	all.Wait()
	answers := map[string]imagecmd.Command{}
	for i, image := range images {
		answers[image] = out[i]
	}
	return answers
}

// Command looks up the command of an image. Concurrent look-ups of the same image share one result. A result is
// cached for a minute by tag, and forever by digest; an error is cached for half a minute.
func (r *Resolver) Command(ctx context.Context, image string) (imagecmd.Command, error) {
	name, err := reference.ParseDockerRef(image) // a tag is ignored if there is a digest
	if err != nil {
		return imagecmd.Command{}, fmt.Errorf("image %q: %w", image, err)
	}
	c, err := r.once(ctx, name.String(), func(ctx context.Context) (imagecmd.Command, time.Duration, error) {
		r.lookups.Add(1)
		c, life, err := r.find(ctx, name)
		if err != nil {
			r.failed.Add(1)
		}
		return c, life, err
	})
	if err != nil {
		return c, fmt.Errorf("image %s: %w", image, err)
	}
	return c, nil
}

// An entry is an element of the cache: a result, or a look-up in progress.
type entry struct {
	done    chan struct{} // closed when the fields below are set
	command imagecmd.Command
	err     error
	until   time.Time // end of the time for which it is cached; zero: no end
}

func (e *entry) valid(now time.Time) bool {
	select {
	case <-e.done:
		return e.until.IsZero() || now.Before(e.until)
	default:
		return true
	}
}

// once calls find, unless the result for the key is cached or in progress. If ctx ends, once returns, but find
// continues, so that a later caller can use the result.
func (r *Resolver) once(ctx context.Context, key string, find func(context.Context) (imagecmd.Command, time.Duration, error)) (imagecmd.Command, error) {
	r.mu.Lock()
	e, ok := r.cache[key]
	if !ok || !e.valid(time.Now()) {
		r.evict()
		e = &entry{done: make(chan struct{})}
		r.cache[key] = e
		go func() {
			ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), r.o.Timeout, errTooSlow(r.o.Timeout))
			defer cancel()
			began := time.Now()
			var life time.Duration
			e.command, life, e.err = find(ctx)
			if life > 0 {
				e.until = began.Add(life)
			}
			close(e.done)
		}()
	}
	r.mu.Unlock()
	select {
	case <-e.done:
		return e.command, e.err
	case <-ctx.Done():
		return imagecmd.Command{}, errors.New("its registry has not answered in time")
	}
}

// evict makes space in a full cache. It removes the expired entries, or all entries if none has expired.
func (r *Resolver) evict() {
	if len(r.cache) < r.o.Entries {
		return
	}
	now := time.Now()
	maps.DeleteFunc(r.cache, func(_ string, e *entry) bool { return !e.valid(now) })
	if len(r.cache) >= r.o.Entries {
		clear(r.cache)
	}
}

func errTooSlow(after time.Duration) error {
	return fmt.Errorf("its registry has not answered within %s", after)
}
