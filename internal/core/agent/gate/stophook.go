package gate

import (
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
	Drain *url.URL // endpoint for a POST after which the proxy drains its inbound listeners
	Own   *Hook    // the container's own preStop hook, which runs meanwhile

	// Sockets counts the open sockets of other users. The proxy is kept while there are any. Default: the records of
	// gates alone decide.
	Sockets func() (int, error)

	Grace time.Duration // of the pod; default 30s, and none if negative
	Say   func(string)
}

// socketPoll is the pause between two counts of sockets: no event announces that one is closed.
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
	if err := h.request(ctx, http.MethodGet, h.At); err != nil {
		h.Say(fmt.Sprintf("%s is not kept for other containers: it is not healthy: %v", h.Name, err))
	} else {
		_ = h.request(ctx, http.MethodPost, h.Drain) // best effort: older proxies drain at SIGTERM only
		h.await(ctx, limit.C)
	}
	return <-own
}

// request calls an endpoint of the proxy; nil is no endpoint.
func (h StopHook) request(ctx context.Context, method string, at *url.URL) error {
	if at == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
	if err != nil {
		return err
	}
	resp, err := plainTransport().RoundTrip(req)
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
	stopping bool // it got its stop signal, or has a preStop hook that delays it
}

// A sign is a change of a dependent.
type sign struct {
	name string
	dependent
}

// await waits until no container needs the proxy, or until limit.
func (h StopHook) await(ctx context.Context, limit <-chan time.Time) {
	alone := time.NewTimer(settle)
	defer alone.Stop()
	signs := make(chan sign)
	need := h.follow(ctx, signs)
	var poll <-chan time.Time
	if h.Sockets != nil {
		poll = time.After(0)
	}
	for {
		if len(need) == 0 && h.Sockets == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case s := <-signs:
			if need[s.name] = s.dependent; s.gone {
				delete(need, s.name)
			}
		case <-alone.C:
			if len(need) > 0 && !anyStopping(need) {
				h.Say(h.Name + " is stopped alone, and is not kept for other containers")
				return
			}
		case <-limit:
			h.Say(fmt.Sprintf("%s stops although %s: the grace period is nearly over", h.Name, h.left(need)))
			return
		case <-poll:
			if len(need) == 0 && h.open() == 0 {
				return
			}
			poll = time.After(socketPoll)
		}
	}
}

func anyStopping(need map[string]dependent) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(need)), func(d dependent) bool { return d.stopping })
}

// open counts the sockets of other users. If they cannot be counted, nothing shows that the proxy is needed.
func (h StopHook) open() int {
	n, err := h.Sockets()
	if err != nil {
		h.Say(fmt.Sprintf("counting the sockets of other users: %v", err))
		return 0
	}
	return n
}

func (h StopHook) left(need map[string]dependent) string {
	if len(need) > 0 {
		return strings.Join(slices.Sorted(maps.Keys(need)), ", ") + " still runs"
	}
	return fmt.Sprintf("other users have %d sockets", h.open())
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
					send(dependent{stopping: s.PreStop || s.Stopping})
				}
				return gone
			}) // an error means that nothing is known of the container
			send(dependent{gone: true})
		}()
	}
	return need
}
