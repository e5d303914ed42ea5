// Package fleet simulates the proxies of a mesh: each has its own certificate, address and TCP
// connection with mutual TLS, and one delta stream on which it subscribes as Envoy
// does. A simulated proxy accepts each message without decoding the resources. When its
// connection ends, it reconnects as Envoy does with the bootstrap that the agent writes, and
// sends the versions of its resources.
//
// The control plane is a real outriderd ([Server]) that serves a folder ([WriteFolder]).
package fleet

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/xds"
)

// timeout is the time limit of a wait that would otherwise never end.
const timeout = 3 * time.Minute

// A Fleet is a set of simulated proxies.
type Fleet struct {
	Proxies []*Proxy

	configured atomic.Pointer[Arrivals]
	stop       context.CancelFunc
	running    sync.WaitGroup
}

// Options configure a fleet.
type Options struct {
	Proxies, Services int
	Uses              int           // number of services that each proxy uses
	Authority         *ca.Authority // signs the proxies' certificates
}

// New makes the proxies, without connecting them. It raises the limit on open files for this process and
// for outriderd, which inherits the limit: each connection needs an open file at both ends.
func New(o Options) (*Fleet, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	f := &Fleet{}
	for i := range o.Proxies {
		p, err := newProxy(f, i, o.Authority)
		if err != nil {
			return nil, err
		}
		// Clusters: one for each service, and the application's own. Listeners: in both directions a normal
		// one, one for early connections and one for silent connections.
		p.services = used(i, o.Services, o.Uses)
		p.want = want{xds.ClusterType: o.Uses + 1, xds.EndpointType: o.Uses, xds.ListenerType: 6}
		f.Proxies = append(f.Proxies, p)
	}
	return f, nil
}

// used returns the services that a proxy uses: service 0, which all proxies use, and others. The pods of one
// deployment use the same services, and consecutive deployments have some in common.
func used(proxy, services, uses int) []int {
	out := []int{0}
	for s := deployment(proxy) * 7; len(out) < uses; s++ {
		out = append(out, 1+s%(services-1))
	}
	return out
}

// Connect connects all proxies at once, and returns when each has its first configuration. It may be
// called once. The proxies reconnect until Disconnect is called.
func (f *Fleet) Connect(address string) (*Arrivals, error) {
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	all := f.Expected()
	for _, p := range f.Proxies {
		f.running.Go(func() { p.follow(ctx, address) })
	}
	return all, f.Await(all)
}

// Disconnect ends all connections, and returns when no proxy runs any more.
func (f *Fleet) Disconnect() {
	f.stop()
	f.running.Wait()
}

// Expected starts a new record of the proxies that receive their configuration on a new connection, and
// resets the counts of their attempts to connect.
func (f *Fleet) Expected() *Arrivals {
	n := len(f.Proxies)
	all := &Arrivals{want: n, began: time.Now(), done: make(chan struct{}), seen: make(map[int]bool, n)}
	for _, p := range f.Proxies {
		p.attempts.Store(0)
	}
	f.configured.Store(all)
	return all
}

// Await waits until all proxies have arrived. It fails after three minutes.
func (f *Fleet) Await(a *Arrivals) error {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-a.done:
		return nil
	case <-t.C:
		a.mu.Lock()
		defer a.mu.Unlock()
		return fmt.Errorf("%d of %d proxies after %s", len(a.after), a.want, timeout)
	}
}

// Arrivals are the times at which the proxies received their configuration, one for each proxy.
type Arrivals struct {
	want  int
	began time.Time
	done  chan struct{}

	mu    sync.Mutex
	seen  map[int]bool
	after []time.Duration // times since began, in ascending order
}

func (a *Arrivals) has(proxy int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[proxy]
}

func (a *Arrivals) note(proxy int) {
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

// End returns the time at which the last proxy received its configuration, in seconds since 1970.
func (a *Arrivals) End() float64 { return float64(a.began.Add(a.Last()).UnixMicro()) / 1e6 }

// First returns the time until the first proxy had its configuration.
func (a *Arrivals) First() time.Duration  { return a.after[0] }
func (a *Arrivals) Median() time.Duration { return a.after[len(a.after)/2] } // time until half of the proxies had it
func (a *Arrivals) Last() time.Duration   { return a.after[len(a.after)-1] } // time until all proxies had it
