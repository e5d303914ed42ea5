package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"outrider.dev/internal/controlplane/ca"
	"outrider.dev/internal/xds"
)

// Every proxy uses the first service, fewUsers use the second, and each uses others.
const (
	usedByAll = 0
	usedByFew = 1
	fewUsers  = 10
	uses      = 50
)

// timeout ends a measurement that would never end.
const timeout = 3 * time.Minute

// A fleet is all proxies of a case. Each has a connection of its own.
type fleet struct {
	proxies []*proxy
	failed  chan error
	watched atomic.Pointer[arrivals]
	stop    context.CancelFunc
	running sync.WaitGroup
}

func newFleet(n, services int, full bool, authority *ca.Authority) (*fleet, error) {
	f := &fleet{failed: make(chan error, n)}
	for i := range n {
		p, err := newProxy(i, authority)
		if err != nil {
			return nil, err
		}
		p.received = f.received
		if full {
			// The application's cluster; for both directions a listener and the one for early
			// connections, and one for the port number that all services have.
			p.want = want{xds.ClusterType: services + 1, xds.EndpointType: services, xds.ListenerType: 5, xds.RouteType: 1}
		} else {
			p.services = used(i, services)
			p.want = want{xds.ClusterType: uses + 1, xds.EndpointType: uses, xds.ListenerType: 6}
		}
		f.proxies = append(f.proxies, p)
	}
	return f, nil
}

// used are the services that a proxy uses: pods of one deployment the same, apart from
// the one that few use, and neighbours partly the same.
func used(proxy, services int) []int {
	out := []int{usedByAll}
	if proxy < fewUsers {
		out = append(out, usedByFew)
	}
	for s := 2 + deployment(proxy)*7%(services-2); len(out) < uses; s++ {
		out = append(out, 2+(s-2)%(services-2))
	}
	return out
}

// connect starts all at once, and returns when each has its first configuration. A fleet
// connects once; disconnect ends it.
func (f *fleet) connect(address string) (*arrivals, error) {
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	all := newArrivals("", len(f.proxies))
	for i, p := range f.proxies {
		p.complete = func() { all.note(i) }
		f.running.Go(func() {
			if err := p.run(ctx, address); ctx.Err() == nil {
				f.failed <- fmt.Errorf("proxy %d: %w", i, err)
			}
		})
	}
	return all, f.await(all)
}

func (f *fleet) disconnect() {
	f.stop()
	f.running.Wait()
}

// expect begins to watch for the endpoints of a service, at so many proxies.
func (f *fleet) expect(service, users int) *arrivals {
	a := newArrivals(endpointsOf(service), users)
	f.watched.Store(a)
	return a
}

func (f *fleet) received(endpoints string, proxy int) {
	if a := f.watched.Load(); a != nil && a.name == endpoints {
		a.note(proxy)
	}
}

func (f *fleet) await(a *arrivals) error {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-a.done:
		return nil
	case err := <-f.failed:
		return err
	case <-t.C:
		a.mu.Lock()
		defer a.mu.Unlock()
		return fmt.Errorf("%d of %d proxies after %s", len(a.after), a.want, timeout)
	}
}

// Arrivals are when something came to proxies, to each once.
type arrivals struct {
	name  string
	want  int
	began time.Time
	done  chan struct{}

	mu    sync.Mutex
	seen  map[int]bool
	after []time.Duration // in order
}

func newArrivals(name string, n int) *arrivals {
	return &arrivals{name: name, want: n, began: time.Now(), done: make(chan struct{}), seen: make(map[int]bool, n)}
}

func (a *arrivals) note(proxy int) {
	now := time.Since(a.began)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[proxy] {
		return
	}
	a.seen[proxy] = true
	a.after = append(a.after, now)
	if len(a.after) == a.want {
		close(a.done)
	}
}

func (a *arrivals) first() time.Duration  { return a.after[0] }
func (a *arrivals) median() time.Duration { return a.after[len(a.after)/2] }
func (a *arrivals) last() time.Duration   { return a.after[len(a.after)-1] }
