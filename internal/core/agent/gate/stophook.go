package gate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/state"
)

// A StopHook is the preStop hook of a proxy that has no gate, such as another mesh's. It returns when the containers
// that need the proxy have ended, so that the kubelet sends SIGTERM to the proxy only then. Name and Say are required;
// the zero value of any other field selects its default.
type StopHook struct {
	Name    string // the proxy's container
	States  string // the volume with the records of all containers
	Sandbox string // the pod's sandbox; see [state.Sandbox]

	At    *url.URL // health endpoint of the proxy: a proxy that is not healthy serves no container, and is not kept
	Live  *Probe   // liveness probe of the proxy: if it fails, the kubelet may be restarting the proxy alone
	Drain *url.URL // endpoint for a POST after which the proxy drains its inbound listeners
	Own   *Hook    // the container's own preStop hook, which runs meanwhile

	// Look looks for containers without a gate that still run. The proxy is kept until nothing has been seen of them
	// for the time Quiet, by default 5s. Default: the records of gates alone decide.
	Look  func() (Sight, error)
	Quiet time.Duration

	// Release ends the parking of connections to the proxy, as in [Options]. Default: nothing.
	Release func() (again bool)

	Grace time.Duration // of the pod; default 30s, and none if negative
	Say   func(string)
}

// A Sight counts, at one moment, the signs of containers without a gate.
type Sight struct {
	Sockets int    // that are open
	Calls   uint64 // TCP connections that any process of the pod has opened so far
}

// quietTime is the default of StopHook.Quiet. That containers have no socket at one moment proves nothing: a worker may
// have none between two calls. It is Istio's default for terminationDrainDuration, for which our own proxy waits, too.
const quietTime = 5 * time.Second

// socketPoll is the pause between two looks: no event announces that a socket is closed.
const socketPoll = 200 * time.Millisecond

// healthLimit limits the requests to the proxy.
const healthLimit = 5 * time.Second

// Run waits until no container needs the proxy and the own hook has returned. It returns the error of the own hook.
//
// It stops waiting for containers when the grace period is nearly over, and when no other container of the pod is
// stopped: then the kubelet restarts the proxy alone. It runs once in a process, because it leaves goroutines behind
// that block on the records of other containers.
func (h StopHook) Run(ctx context.Context) error {
	if h.Grace == 0 {
		h.Grace = defaultGrace
	}
	limit := time.NewTimer(contract.StopLimit(h.Grace))
	defer limit.Stop()
	own := make(chan error, 1)
	go func() {
		var err error
		if h.Own != nil {
			err = h.Own.run(ctx)
		}
		own <- err
	}()
	if err := h.sick(ctx); err != nil {
		h.Say(fmt.Sprintf("%s is not kept for other containers: it is not healthy: %v", h.Name, err))
	} else {
		_ = h.request(ctx, http.MethodPost, h.Drain) // best effort: older proxies drain at SIGTERM only
		if h.await(ctx, limit.C) && h.Release != nil {
			h.Release() // the proxy leaves: what nothing has announced must fail, and not wait until it is killed
		}
	}
	return <-own
}

// sick returns the reason why the proxy is not worth keeping; nil if it serves.
func (h StopHook) sick(ctx context.Context) error {
	if err := h.request(ctx, http.MethodGet, h.At); err != nil || h.Live == nil {
		return err
	}
	var err error
	for range min(h.Live.FailureThreshold, 3) { // one failure may be chance
		if err = h.Live.Try(ctx); err == nil {
			return nil
		}
	}
	return fmt.Errorf("its liveness probe: %w", err)
}

// request calls an endpoint of the proxy; nil is no endpoint.
func (h StopHook) request(ctx context.Context, method string, at *url.URL) error {
	if at == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	if at.Scheme == tcpScheme {
		return connects(ctx, at)
	}
	to := requestURL(at)
	req, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return err
	}
	resp, err := transportTo(at).RoundTrip(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if !isSuccess(resp.StatusCode) {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// A dependent is a container that needs the proxy.
type dependent struct {
	gone     bool
	stopping bool // it got its stop signal
	late     bool // it has a preStop hook, which delays its stop signal
}

// A sign is a change of a dependent.
type sign struct {
	name string
	dependent
}

// await waits until no container needs the proxy, or until limit. It returns false if the proxy is stopped alone.
func (h StopHook) await(ctx context.Context, limit <-chan time.Time) bool {
	alone := time.NewTimer(settle)
	defer alone.Stop()
	signs := make(chan sign)
	need := h.follow(ctx, signs)
	view := view{look: h.Look, say: h.Say, time: cmp.Or(h.Quiet, quietTime)}
	var poll <-chan time.Time
	if h.Look != nil {
		poll = time.After(0)
	}
	for {
		if len(need) == 0 && h.Look == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return true
		case s := <-signs:
			if need[s.name] = s.dependent; s.gone {
				delete(need, s.name)
			}
		case <-alone.C:
			if onlyProxyStops(need) {
				h.Say(h.Name + " is stopped alone, and is not kept for other containers")
				return false
			}
		case <-limit:
			h.Say(fmt.Sprintf("%s stops although %s: the grace period is nearly over", h.Name, left(need, view.last)))
			return true
		case <-poll:
			if view.quiet() && len(need) == 0 {
				return true
			}
			poll = time.After(socketPoll)
		}
	}
}

// onlyProxyStops reports whether the records show that only the proxy's container is stopped: none of the containers
// has got its stop signal, although the kubelet sends it to all at once, and not every one has a hook that delays it.
func onlyProxyStops(need map[string]dependent) bool {
	all := slices.Collect(maps.Values(need))
	return !slices.ContainsFunc(all, func(d dependent) bool { return d.stopping }) && slices.ContainsFunc(all, func(d dependent) bool { return !d.late })
}

// A view follows containers without a gate.
type view struct {
	look func() (Sight, error)
	say  func(string)
	time time.Duration // see StopHook.Quiet

	last  Sight
	since time.Time // time of the last sign of them
	blind bool      // an error was said
}

// quiet looks once, and reports whether nothing has been seen for long enough. If nothing can be seen at all, nothing
// shows that the proxy is needed.
func (v *view) quiet() bool {
	now, err := v.look()
	if err != nil {
		if !v.blind {
			v.say(fmt.Sprintf("counting the sockets of other containers: %v", err))
		}
		v.blind = true
		return true
	}
	sign := now.Sockets > 0 || now.Calls != v.last.Calls || v.since.IsZero()
	if v.last = now; sign {
		v.since = time.Now()
	}
	return !sign && time.Since(v.since) >= v.time
}

func left(need map[string]dependent, seen Sight) string {
	if len(need) > 0 {
		return strings.Join(slices.Sorted(maps.Keys(need)), ", ") + " still runs"
	}
	return fmt.Sprintf("other containers still have sockets or call (%d open)", seen.Sockets)
}

// follow returns the containers that need the proxy, and sends their changes until ctx ends.
func (h StopHook) follow(ctx context.Context, signs chan<- sign) map[string]dependent {
	need := map[string]dependent{}
	names, err := state.Containers(h.States)
	if err != nil {
		h.Say(err.Error())
		return need
	}
	for _, name := range names {
		seen, err := state.Read(h.States, h.Sandbox, name)
		if err != nil || !needs(seen, h.Name) {
			continue
		}
		need[name] = dependent{} // Await calls the function with this record, too
		go func() {
			send := func(d dependent) {
				select {
				case signs <- sign{name, d}:
				case <-ctx.Done():
				}
			}
			_, _ = state.Await(h.States, h.Sandbox, name, func(s state.Seen) bool {
				gone := !needs(s, h.Name)
				if !gone {
					send(dependent{stopping: s.Stopping, late: s.PreStop})
				}
				return gone
			}) // an error means that nothing is known of the container
			send(dependent{gone: true})
		}()
	}
	return need
}
