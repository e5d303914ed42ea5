package contract

import (
	"flag"
	"fmt"
	"strconv"
	"time"
)

// A PreStop is the command line of "outrider-agent pre-stop", the preStop hook of a proxy that has no gate, such as
// another mesh's. It returns when the containers that need the proxy have ended, so that the kubelet sends SIGTERM to
// the proxy only then:
//
//	/outrider/bin/outrider-agent pre-stop --name istio-proxy --at http://127.0.0.1:15021/healthz/ready
//
// A field with its zero value omits the flag.
type PreStop struct {
	Name, States string

	At        string        // health URL of the proxy
	Drain     string        // URL at which the proxy is requested, by POST, to drain its inbound listeners
	Live      string        // liveness probe of the proxy, JSON
	Sockets   bool          // containers without a gate need the proxy, too
	Apart     []uint32      // users of other proxies, whose sockets do not count
	Hook      string        // the container's own preStop hook, JSON
	StopGrace time.Duration // the pod's grace period; a negative value means 0s; zero omits the flag
}

// Flags returns a flag set that parses into p.
func (p *PreStop) Flags() *flag.FlagSet {
	fs := newFlags(preStopCommand)
	placeFlags(fs, &p.Name, &p.States)
	fs.StringVar(&p.At, "at", "", "health `URL` of the proxy: one that is not healthy is not kept")
	fs.StringVar(&p.Drain, "drain", "", "`URL` for a POST by which the proxy drains its inbound listeners")
	fs.BoolVar(&p.Sockets, "sockets", false, "wait also until no other container has shown a socket or called for five seconds: for containers without a gate")
	fs.StringVar(&p.Live, "live", "", "JSON of the proxy's liveness `probe`: a proxy for which it fails is not kept")
	fs.Func("apart", "`ID` of a user whose sockets do not count, because it is another proxy's; may be repeated", func(text string) error {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return fmt.Errorf("--apart %q: want the ID of a user", text)
		}
		p.Apart = append(p.Apart, uint32(n))
		return nil
	})
	fs.StringVar(&p.Hook, "hook", "", "JSON of the container's own preStop `hook`, which runs meanwhile")
	stopGraceFlag(fs, &p.StopGrace)
	return fs
}

// Args returns the agent's arguments. [ParsePreStop] parses them.
func (p PreStop) Args() []string {
	a := args{preStopCommand}
	a.place(p.Name, p.States)
	a.given("at", p.At)
	a.given("drain", p.Drain)
	if p.Sockets {
		a = append(a, "--sockets")
	}
	a.given("live", p.Live)
	for _, id := range p.Apart {
		a.given("apart", strconv.FormatUint(uint64(id), 10))
	}
	a.given("hook", p.Hook)
	a.stopGrace(p.StopGrace)
	return a
}

// ParsePreStop parses the agent's arguments, as [ParseGate] does.
func ParsePreStop(arguments []string) (PreStop, bool) {
	var p PreStop
	rest, ok := parse(preStopCommand, p.Flags(), arguments)
	return p, ok && len(rest) == 0
}

// LeastGrace is the minimum that the kubelet gives each container, however late its stop signal comes
// (minimumGracePeriodInSeconds in kubelet v1.34.4 pkg/kubelet/kuberuntime).
const LeastGrace = 2 * time.Second

// StopLimit returns the maximum time for which a gate or a preStop hook of ours delays a container's SIGTERM, after a
// stop that left the given grace period. The rest is for the container's own shutdown: [LeastGrace], but never more than
// half of the grace period.
func StopLimit(grace time.Duration) time.Duration { return max(grace-LeastGrace, grace/2, 0) }

// OrdersStops reports whether a grace period is long enough for gates and preStop hooks to order stops: the containers that
// stop first then have [LeastGrace].
func OrdersStops(grace time.Duration) bool { return StopLimit(grace) >= LeastGrace }
