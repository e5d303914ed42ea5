package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// proofs makes an agent prove capture as often as it may.
const proofs = "OUTRIDER_CAPTURE_PROOF=100ms"

// The agent proves capture for each address family: a pod is not ready if one family bypasses the proxy.
func TestCaptureOfBothFamilies(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Family = harness.Dual
	w.Serve()
	for family, want := range map[string]string{"ipv4": "127.0.0.6:15002", "ipv6": "[::6]:15002"} {
		w.Run(family, func(t *testing.T) {
			p := w.Pod("past-" + family)
			command(t, p, "nft", "insert", "rule", "inet", "outrider", "output", "meta", "nfproto", family, "accept")
			a := p.Agent()
			defer a.Kill()
			a.Unready("capture-not-in-place", want)
			p.Capture()
			a.Ready()
		})
	}
	// Only the families to be captured are required.
	w.Capture = []string{"--families=ipv4"}
	p := w.Pod("as-asked")
	p.Env = []string{"OUTRIDER_FAMILIES=ipv4"}
	p.Agent().Ready()
}

// Without a standby the agent cannot prove capture, and reports so.
func TestCaptureIsNotProvedWithoutStandby(t *testing.T) {
	a := lone(t, "OUTRIDER_STANDBY=off")
	s, _ := a.Status()
	notes := ""
	for _, n := range s.Notes {
		notes += n.Message + "\n"
	}
	if !strings.Contains(notes, "proved at init only: without a standby") {
		t.Errorf("notes: %q", notes)
	}
}

// While Envoy serves, the rules are lost again and again, as a whole or in part, under load: the pod is not ready
// until they are back, and the reason says what is lost.
func TestCaptureThatIsLostWhileServing(t *testing.T) {
	t.Parallel()
	all := []string{"inbound IPv4", "outbound IPv4", "inbound IPv6", "outbound IPv6"}
	table := []string{"nft", "delete", "table", "inet", "outrider"}
	shell := func(script string) []string { return []string{"sh", "-ec", script} }
	tests := map[string]struct {
		capture []string
		tproxy  bool
		losses  []loss
	}{
		"nftables": {losses: []loss{
			{table, all},
			{shell("nft insert rule inet outrider output meta nfproto ipv6 accept"), []string{"inbound IPv6", "outbound IPv6"}},
			{shell("nft flush chain inet outrider app"), []string{"outbound IPv4", "outbound IPv6"}},
			{shell("nft insert rule inet outrider proxy ip daddr 127.0.0.6 accept"), []string{"inbound IPv4"}},
		}},
		"nftables, parking off": {capture: []string{"--park=off"}, losses: []loss{{table, all}}},
		"nftables, TPROXY":      {tproxy: true, losses: []loss{{table, all}, {shell("nft flush chain inet outrider mangle-prerouting"), []string{"inbound IPv4", "inbound IPv6"}}}},
		"iptables":              {capture: []string{"--backend=iptables"}, losses: []loss{{shell("iptables -t nat -F && ip6tables -t nat -F"), all}, {shell("iptables -t nat -F"), all[:2]}}},
		"iptables, TPROXY":      {tproxy: true, capture: []string{"--backend=iptables"}, losses: []loss{{shell("iptables -t mangle -F && ip6tables -t mangle -F"), []string{"inbound IPv4", "inbound IPv6"}}, {shell("ip6tables -t nat -F"), []string{"outbound IPv6"}}}},
	}
	for name, tt := range tests {
		if !tier.Nightly() && strings.Contains(name, "iptables,") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.New(t)
			w.Family, w.Capture = harness.Dual, tt.capture
			w.Service("server", vip, "server", ports...)
			w.Serve()
			outsider := w.Machine("outsider")
			tellCallers(outsider)
			env := []string{proofs}
			if tt.tproxy {
				w.Capture = append(slices.Clone(tt.capture), "-m", "TPROXY")
				env = append(env, "ISTIO_META_INTERCEPTION_MODE=TPROXY")
			}
			p := w.Pod("server")
			p.Env = env
			if tt.tproxy {
				p.Capabilities = []uintptr{unix.CAP_NET_ADMIN}
			}
			app(p)
			a := p.Agent()
			a.Ready()
			loseCapture(t, p, a, outsider, tt.losses)
		})
	}
}

// A loss is a command that breaks capture, and the ways that do not lead to the proxy then.
type loss struct {
	command []string
	ways    []string
}

// loseCapture breaks and repairs capture under load, and prints how long it takes until that is seen.
func loseCapture(t *testing.T, p *harness.Pod, a *harness.Agent, outsider *harness.Pod, losses []loss) {
	var lost atomic.Bool
	var past atomic.Int64
	load := harness.NewLoad(4, 0, func() error {
		before := lost.Load()
		through, err := throughProxy(p, outsider)
		if err == nil && !through {
			past.Add(1)
			if !before && !lost.Load() {
				return fmt.Errorf("a call went past the proxy")
			}
		}
		return nil // calls may fail while the rules change
	})
	var seen, back []time.Duration
	n := tier.Times(min(len(losses), 2), 100)
	for i := range n {
		l := losses[i%len(losses)]
		lost.Store(true)
		began := time.Now()
		command(t, p, l.command[0], l.command[1:]...)
		a.Unready("capture-not-in-place", "did not come to the proxy")
		seen = append(seen, time.Since(began))
		var got readiness.Reason
		for _, way := range l.ways { // on a busy machine they are not seen in one round
			got = a.Unready("capture-not-in-place", way+":")
		}
		for _, way := range []string{"inbound IPv4", "outbound IPv4", "inbound IPv6", "outbound IPv6"} {
			if slices.Contains(l.ways, way) != strings.Contains(got.Message, way+":") {
				t.Errorf("%q: %s; want %q", l.command, got.Message, l.ways)
			}
		}
		began = time.Now()
		p.Capture()
		a.Ready()
		back = append(back, time.Since(began))
		lost.Store(false)
	}
	made, _, failed := load.Stop()
	t.Log(spread("seen", seen))
	t.Log(spread("ready again", back))
	t.Logf("%d calls, %d past the proxy", made, past.Load())
	if len(failed) > 0 {
		t.Errorf("%d calls, the first %s", len(failed), failed[0])
	}
	if metrics := a.Get(15020, "/metrics").Body; !strings.Contains(metrics, fmt.Sprintf("\noutrider_agent_capture_lost_total %d\n", n)) || !strings.Contains(metrics, "\noutrider_agent_capture_in_place 1\n") {
		t.Errorf("metrics: %s", grep(metrics, "capture"))
	}
}

// callers is the port on which an outsider tells each client the client's address.
const callers = 95

// tellCallers serves the port callers.
func tellCallers(p *harness.Pod) {
	go each(harness.Listen(p.World, p.Namespace, harness.AppUser, fmt.Sprintf(":%d", callers)), func(c net.Conn) { fmt.Fprintln(c, c.RemoteAddr()) })
}

// lostAnswer limits a call: the answer to one that was made while the rules changed may never come, and then its
// worker is to make the next.
const lostAnswer = 5 * time.Second

// throughProxy makes a call from a pod to an outsider, and reports whether another process of the pod, its proxy,
// made the connection that the outsider has.
func throughProxy(p, outsider *harness.Pod) (bool, error) {
	to := netip.AddrPortFrom(outsider.Addresses[0], callers)
	c, err := harness.Dialer(p.Namespace, harness.AppUser)(context.Background(), "tcp", to.String())
	if err != nil {
		return false, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(lostAnswer)) // time limit: no verdict depends on it, since a call that fails is not counted
	got, err := firstLine(c)
	return strings.TrimSpace(got) != c.LocalAddr().String(), err
}

func grep(text, word string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// Envoy sees nothing of the proofs, in no family and no direction: no connection, no log line.
func TestEnvoySeesNoProof(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Family = harness.Dual
	w.Serve()
	p := w.Pod("server")
	p.Env = []string{proofs}
	a := p.Agent()
	a.Ready()
	stats := func() string {
		return grep(a.Get(15000, "/stats?filter=downstream_cx_total|upstream_cx_total&usedonly").Body, ".")
	}
	counted := func() (n int) {
		for line := range strings.Lines(a.Get(15020, "/metrics").Body) {
			fmt.Sscanf(line, "outrider_agent_capture_proofs_total %d", &n)
		}
		return n
	}
	before, first, spent := stats(), counted(), process.Spent(a.PID())
	n := tier.Times(20, 1000)
	process.Eventually(t, "more proofs", func() bool { time.Sleep(time.Second); return counted() >= first+n }, a)
	t.Logf("%d proofs by two families: %s of the agent's processor time", counted()-first, process.Spent(a.PID())-spent)
	after := stats()
	for line := range strings.Lines(after) {
		if (strings.Contains(line, "_15001") || strings.Contains(line, "_15006") || strings.Contains(line, "PassthroughCluster")) && !strings.Contains(before, line) {
			t.Errorf("%d proofs: %q; before %q", counted()-first, line, before)
		}
	}
	for _, word := range []string{"192.0.2.", "2001:db8", "127.0.0.6"} {
		if strings.Contains(a.Log(), word) {
			t.Errorf("the log has %s: %s", word, grep(a.Log(), word))
		}
	}
}

func command(t *testing.T, p *harness.Pod, name string, args ...string) {
	t.Helper()
	var out []byte
	var err error
	p.Do(func() { out, err = exec.Command(name, args...).CombinedOutput() })
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
