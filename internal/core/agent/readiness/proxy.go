package readiness

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/envoy"
)

// An Admin is Envoy's admin interface; *envoy.Admin is one.
type Admin interface {
	Ready(ctx context.Context) (ready bool, state string, err error)
	Stats(ctx context.Context, filter string) (map[string]uint64, error)
	Get(ctx context.Context, path, query string) ([]byte, error)
}

// ProxyOptions configure a Proxy. The zero value of a field selects its default.
type ProxyOptions struct {
	Board *Board // required; the Proxy sets Envoy, Listeners, Configuration, ControlPlane and Identity
	Admin Admin  // required

	Ports []uint16 // ports on which Envoy must listen; default: the capture ports

	ControlPlane string        // name of the control plane in reasons
	Stream       func() Stream // returns the state of the agent's connection to the control plane; required

	Answered func(context.Context) // called each time a ready Envoy has answered a poll; default: nothing

	// Progress returns the processor time of Envoy's main thread, and whether the thread is runnable or waits
	// for a disk. Default: not known; then each long silence counts as a hang.
	Progress func() (ran time.Duration, awake bool)

	slow time.Duration // longest pause between polls until Envoy is ready; default 100ms
}

// A Stream is the state of the connection to the control plane.
type Stream struct {
	Connected bool
	Refused   bool   // proxy and control plane do not accept one another
	Reason    string // why it is not connected; empty: not tried yet
}

// quick is the first pause after Envoy has logged that it is ready; then pauses double.
const quick = 500 * time.Microsecond

// A Proxy finds out when an Envoy is ready. It looks when Envoy logs a certain line, and confirms
// that with Envoy's admin interface and with the kernel's list of listening sockets: the state LIVE
// does not mean that the listeners are bound.
type Proxy struct {
	o         ProxyOptions
	listening func() (missing []uint16, err error)
	wake      chan struct{} // capacity 1: something was logged

	mu     sync.Mutex
	ports  []uint16 // on which Envoy must listen
	life   int      // number of the current Envoy
	logged logged   // log of the current Envoy
}

// logged holds the facts from Envoy's log.
type logged struct {
	initialized bool
	stream      news // refused or broken
	why         string
	rejected    string
}

// NewProxy returns a Proxy that does not follow an Envoy yet.
func NewProxy(o ProxyOptions) *Proxy {
	if len(o.Ports) == 0 {
		o.Ports = []uint16{contract.OutboundPort, contract.InboundPort}
	}
	o.ControlPlane = cmp.Or(o.ControlPlane, "the control plane")
	o.slow = cmp.Or(o.slow, 100*time.Millisecond)
	if o.Answered == nil {
		o.Answered = func(context.Context) {}
	}
	if o.Progress == nil {
		o.Progress = func() (time.Duration, bool) { return 0, false }
	}
	p := &Proxy{o: o, ports: slices.Clone(o.Ports), wake: make(chan struct{}, 1)}
	p.listening = func() ([]uint16, error) { return Listening("/proc", uint32(os.Getuid()), p.needed()...) }
	return p
}

// needed returns the ports on which Envoy must listen.
func (p *Proxy) needed() []uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ports)
}

// Leave is called when Envoy is to close a port for good. An Envoy that starts after that, or is starting, is ready
// without it.
func (p *Proxy) Leave(port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports = slices.DeleteFunc(p.ports, func(other uint16) bool { return other == port })
}

// LogLine evaluates a line of Envoy's log. It does not block.
func (p *Proxy) LogLine(l envoy.Line) {
	n, reason := read(l)
	if n == nothing {
		return
	}
	p.mu.Lock()
	switch n {
	case initialized:
		p.logged.initialized = true
	case refused, broken:
		p.logged.stream, p.logged.why = n, reason
	case rejected:
		p.logged.rejected = reason
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// begin resets the state for a new Envoy. When ctx ends, it sets the conditions of an Envoy that has
// ended.
func (p *Proxy) begin(ctx context.Context) {
	p.mu.Lock()
	p.life++
	life := p.life
	p.logged = logged{}
	p.mu.Unlock()
	b := p.o.Board
	b.Set(Envoy, false, "Envoy starts")
	b.Set(Listeners, false, rules[Listeners].begin)
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.life != life {
			return // the next Envoy has begun already
		}
		b.Set(Envoy, false, "Envoy has ended")
		b.Set(Listeners, false, "Envoy has ended")
	})
}

// Ready waits until the Envoy that was just started is ready, and the board shows it. After that,
// until ctx ends, the board shows whether Envoy hangs. When ctx ends, the board shows that Envoy has
// ended. So ctx must end together with Envoy, not when Ready returns.
func (p *Proxy) Ready(ctx context.Context) error {
	p.begin(ctx)
	accepted, pause := false, p.o.slow
	for {
		if p.look(ctx, &accepted) {
			go p.watch(ctx)
			return nil
		}
		select {
		case <-p.wake:
			pause = quick
		case <-time.After(pause):
			pause = min(2*pause, p.o.slow)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look checks everything once. It sets accepted once the configuration was accepted, and does not
// check that again.
func (p *Proxy) look(ctx context.Context, accepted *bool) (ready bool) {
	if !*accepted {
		*accepted = p.configuration(ctx)
	}
	bound := p.bound()
	live := p.live(ctx)
	if ctx.Err() != nil {
		return false
	}
	b := p.o.Board
	// The conditions that take longest are set last, so that waiters are released only when all
	// conditions are up to date.
	b.Set(Listeners, bound == "", bound)
	b.Set(Envoy, live == "", live)
	return *accepted && bound == "" && live == ""
}

// bound describes the ports on which Envoy does not listen; empty if it listens on all.
func (p *Proxy) bound() (problem string) {
	missing, err := p.listening()
	if err != nil {
		return err.Error()
	}
	if len(missing) == 0 {
		return ""
	}
	words := make([]string, len(missing))
	for i, port := range missing {
		words[i] = strconv.Itoa(int(port))
	}
	return "Envoy does not listen on " + strings.Join(words, ", ")
}

// live returns the reason why Envoy is not LIVE; empty if it is.
func (p *Proxy) live(ctx context.Context) (problem string) {
	ok, state, err := p.o.Admin.Ready(ctx)
	switch {
	case err != nil:
		return "Envoy does not answer yet: " + short(err.Error())
	case !ok:
		return "Envoy says " + short(state)
	}
	return ""
}

// statistics selects the statistics that [Proxy.configuration] reads.
const statistics = `^(cluster_manager\.cds|listener_manager\.lds)\.update_(success|rejected)$`

// configuration reads Envoy's statistics of the control plane's updates, sets the conditions of the
// control plane, and reports whether clusters and listeners were accepted.
func (p *Proxy) configuration(ctx context.Context) (accepted bool) {
	stats, err := p.o.Admin.Stats(ctx, statistics)
	if err != nil {
		return false // live returns the reason
	}
	p.mu.Lock()
	l := p.logged
	p.mu.Unlock()
	accepted = stats["cluster_manager.cds.update_success"] > 0 && stats["listener_manager.lds.update_success"] > 0
	p.connection(l, accepted)
	p.o.Board.Set(Configuration, accepted, p.unaccepted(ctx, stats, l, accepted))
	return accepted
}

// connection sets the conditions of the stream to the control plane. They hold once configuration
// was accepted: if the stream breaks after that, the proxy goes on serving.
func (p *Proxy) connection(l logged, accepted bool) {
	b, cp, s := p.o.Board, p.o.ControlPlane, p.o.Stream()
	if accepted || s.Connected {
		b.Set(Identity, true, "")
		b.Set(ControlPlane, true, "")
		return
	}
	reason := rules[ControlPlane].begin
	switch {
	case l.stream == refused: // Envoy's log shows why the stream was refused
		s.Refused, s.Reason = true, fmt.Sprintf("%s and this proxy do not accept one another: %s", cp, l.why)
	case s.Reason != "":
		reason = s.Reason
	case l.why != "":
		reason = fmt.Sprintf("no stream to %s: %s", cp, l.why)
	}
	if s.Refused {
		reason = fmt.Sprintf("no stream to %s: see identity-refused", cp)
		b.Set(Identity, false, s.Reason)
	} else {
		b.Set(Identity, true, "")
	}
	b.Set(ControlPlane, false, reason)
}

// kinds lists the kinds of configuration that Envoy needs, and where Envoy shows that one is missing.
var kinds = []struct{ name, stat, dump string }{
	{"clusters", "cluster_manager.cds", "dynamic_warming_clusters"},
	{"listeners", "listener_manager.lds", "dynamic_listeners"},
}

// unaccepted describes which configuration is missing or was rejected.
func (p *Proxy) unaccepted(ctx context.Context, stats map[string]uint64, l logged, accepted bool) string {
	if accepted {
		return ""
	}
	var words []string
	for _, k := range kinds {
		switch {
		case stats[k.stat+".update_success"] > 0:
		case stats[k.stat+".update_rejected"] > 0:
			why := l.rejected
			if why == "" {
				raw, err := p.o.Admin.Get(ctx, "/config_dump", "resource="+k.dump)
				if err == nil {
					why = dumpedError(raw)
				}
			}
			words = append(words, fmt.Sprintf("Envoy rejected the %s: %s", k.name, cmp.Or(why, "it does not say why")))
		default:
			words = append(words, "no "+k.name+" yet")
		}
	}
	return strings.Join(words, "; ")
}

// dumpedError finds the first error in a configuration dump.
func dumpedError(raw []byte) string {
	var dump struct {
		Configs []struct {
			ErrorState struct{ Details string } `json:"error_state"`
		}
	}
	if err := json.Unmarshal(raw, &dump); err != nil {
		return ""
	}
	for _, c := range dump.Configs {
		if d := c.ErrorState.Details; d != "" {
			return short(d)
		}
	}
	return ""
}
