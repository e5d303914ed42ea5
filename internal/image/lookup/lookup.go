// Package lookup finds out what an image runs: the ENTRYPOINT and CMD of its configuration,
// from its registry, by digest. The kubelet gives them to a container that names no command
// of its own, and a gate that wraps the command has to know them before.
//
// It reads two or three small documents and no layer. Whatever it reads is checked against
// its digest and against a bound of its own. An image for several platforms counts only if
// it runs the same on each that is Linux: who asks does not know the node.
//
//	lookup.go       what is asked, and the answers that are kept
//	image.go        the way from a name to a command
//	document.go     indexes, manifests and configurations, as they are written
//	registry.go     requests to one registry; redirects
//	challenge.go    what a registry wants to see first
//	credentials.go  the file with credentials
//	dial.go         where requests may go
package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distribution/reference"

	"outrider.dev/internal/pod/inject"
)

// Options of a [Resolver]. The zero value of a field means its default.
type Options struct {
	// Config is a file with credentials, as Docker's config.json. It is read again for
	// each look-up, so that it can be replaced. Default: registries are asked as anybody may.
	Config string

	// Insecure are registries, HOST or HOST:PORT, that are asked by plain HTTP, and may be
	// this machine. Default: none.
	Insecure []string

	Timeout time.Duration // of one look-up, all its requests together; default 3s
	Entries int           // answers that are kept; default 512

	Transport http.RoundTripper // default: one that does not go to this machine or its link
}

// How long an answer counts. What a digest stands for does not change.
const (
	tagLife     = time.Minute
	failureLife = 30 * time.Second
)

// A Resolver looks images up. It may be used from many goroutines.
type Resolver struct {
	o      Options
	client *http.Client
	slots  chan struct{} // of requests

	mu      sync.Mutex
	flights map[string]*flight

	asked, failed atomic.Uint64
}

// New returns a resolver. The error is of the file with credentials.
func New(o Options) (*Resolver, error) {
	o.Timeout = cmp.Or(o.Timeout, 3*time.Second)
	o.Entries = cmp.Or(o.Entries, 512)
	if o.Transport == nil {
		o.Transport = transport(o.Insecure)
	}
	if _, err := readConfig(o.Config); err != nil {
		return nil, err
	}
	for _, host := range o.Insecure {
		if !isRegistry(host) {
			return nil, fmt.Errorf("registry %q: want HOST or HOST:PORT", host)
		}
	}
	r := &Resolver{o: o, flights: map[string]*flight{}, slots: make(chan struct{}, atATime)}
	r.client = &http.Client{Transport: o.Transport, CheckRedirect: r.redirect}
	return r, nil
}

// Counters are what happened since the start.
type Counters struct {
	Asked  uint64 // look-ups that a registry was asked for
	Failed uint64 // of those, without a command for an answer
}

// Counters returns the numbers of this moment.
func (r *Resolver) Counters() Counters { return Counters{r.asked.Load(), r.failed.Load()} }

// Commands looks images up, all at a time. One whose command is not known says why.
func (r *Resolver) Commands(ctx context.Context, images []string) map[string]inject.ImageCommand {
	out := make([]inject.ImageCommand, len(images))
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
	answers := map[string]inject.ImageCommand{}
	for i, image := range images {
		answers[image] = out[i]
	}
	return answers
}

// Command looks one up. Who asks for the same image meanwhile gets the same answer; it is
// kept for a minute by a tag, and for good by a digest. A failure counts for half a minute.
func (r *Resolver) Command(ctx context.Context, image string) (inject.ImageCommand, error) {
	name, err := reference.ParseDockerRef(image) // with a digest, the tag does not count
	if err != nil {
		return inject.ImageCommand{}, fmt.Errorf("image %q: %w", image, err)
	}
	c, err := r.once(ctx, name.String(), func(ctx context.Context) (inject.ImageCommand, time.Duration, error) {
		r.asked.Add(1)
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

// A flight is an answer, or that it is on its way.
type flight struct {
	landed  chan struct{}
	command inject.ImageCommand
	err     error
	until   time.Time // it counts; zero: for good
}

func (f *flight) counts(now time.Time) bool {
	select {
	case <-f.landed:
		return f.until.IsZero() || now.Before(f.until)
	default:
		return true
	}
}

// once calls find, unless its answer is there or on its way. What is found is of use to the
// next who asks, so it is looked for even if this one stops waiting.
func (r *Resolver) once(ctx context.Context, key string, find func(context.Context) (inject.ImageCommand, time.Duration, error)) (inject.ImageCommand, error) {
	r.mu.Lock()
	f, ok := r.flights[key]
	if !ok || !f.counts(time.Now()) {
		r.makeRoom()
		f = &flight{landed: make(chan struct{})}
		r.flights[key] = f
		go func() {
			ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), r.o.Timeout, errTooSlow(r.o.Timeout))
			defer cancel()
			began := time.Now()
			var life time.Duration
			f.command, life, f.err = find(ctx)
			if life > 0 {
				f.until = began.Add(life)
			}
			close(f.landed)
		}()
	}
	r.mu.Unlock()
	select {
	case <-f.landed:
		return f.command, f.err
	case <-ctx.Done():
		return inject.ImageCommand{}, errors.New("its registry has not answered in time")
	}
}

// makeRoom forgets what counts no more, and if that is not enough everything: what is asked
// for again comes back.
func (r *Resolver) makeRoom() {
	if len(r.flights) < r.o.Entries {
		return
	}
	now := time.Now()
	for key, f := range r.flights {
		if !f.counts(now) {
			delete(r.flights, key)
		}
	}
	if len(r.flights) >= r.o.Entries {
		clear(r.flights)
	}
}

func errTooSlow(after time.Duration) error {
	return fmt.Errorf("its registry has not answered within %s", after)
}
