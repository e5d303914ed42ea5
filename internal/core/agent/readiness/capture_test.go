package readiness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/standby"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/test/ns"
)

// captured makes a dual-stack pod, with the rules of an intent that change edits. If change is
// nil, the pod has no rules.
func captured(t *testing.T, change func(*capture.Intent)) *ns.Namespace {
	t.Helper()
	pod := ns.Pod(t)
	pod.IP("addr", "add", "fd09::2/64", "dev", "eth0", "nodad")
	pod.IP("route", "add", "default", "via", "fd09::1")
	if change == nil {
		return pod
	}
	pod.Do(func() {
		in := capture.Defaults()
		in.InboundPorts.All, in.OutboundRanges.All = true, true
		change(&in)
		backends, err := setup.Backends("auto", "")
		if err == nil {
			_, err = setup.Capture(t.Context(), setup.Options{Intent: in, Backends: backends})
		}
		if err != nil {
			t.Error(err)
		}
	})
	return pod
}

// asAgent names the environment variable that makes the test binary prove capture as the agent does: as the proxy's
// user, without privileges.
const asAgent = "OUTRIDER_TEST_CAPTURE"

func TestMain(m *testing.M) {
	raw := os.Getenv(asAgent)
	if raw == "" {
		os.Exit(m.Run())
	}
	var q question
	err := json.Unmarshal([]byte(raw), &q)
	if err == nil {
		err = q.answer(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A question is asked of a process in a pod.
type question struct {
	Families    capture.Families
	Ports       []uint16 // ports with a listener of the agent
	Transparent bool
	Rounds      int
}

// answer proves capture, in one round by default, and writes the status of the board.
func (q question) answer(ctx context.Context) error {
	c := NewCapture(CaptureOptions{IPv4: q.Families.Has(capture.IPv4), IPv6: q.Families.Has(capture.IPv6)})
	for _, port := range q.Ports {
		s, err := standby.Listen(ctx, standby.Options{
			Port: port, Relay: netip.MustParseAddrPort("127.0.0.1:9"), Transparent: q.Transparent && port == contract.InboundPort, Proof: c.Arrived})
		if err != nil {
			return err
		}
		defer s.Close()
	}
	b := New(Options{Conditions: []Condition{CaptureRules}})
	for range max(1, q.Rounds) {
		c.round(ctx, b)
	}
	return json.NewEncoder(os.Stdout).Encode(b.Status(Outbound))
}

// ask runs the question in a pod, as the agent.
func (q question) ask(t *testing.T, pod *ns.Namespace) (s Status) {
	t.Helper()
	raw, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	pod.Do(func() {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), asAgent+"="+string(raw))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1337, Gid: 1337}}
		if q.Transparent {
			cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
		}
		var out []byte
		if out, err = cmd.Output(); err == nil {
			err = json.Unmarshal(out, &s)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCaptureIsProvedByBehaviour(t *testing.T) {
	ns.RequireRoot(t)
	const inbound, outbound = contract.InboundPort, contract.OutboundPort
	only := func(f capture.Families, mode capture.Mode) func(*capture.Intent) {
		return func(in *capture.Intent) { in.Families, in.Mode = f, mode }
	}
	both := []uint16{inbound, outbound}
	tests := map[string]struct {
		rules    func(*capture.Intent)
		families capture.Families
		ports    []uint16
		taken    string // address with a listener of the app
		notes    []string
		reasons  []string // one for each way that does not work
	}{
		"both families":                {rules: only(capture.DualStack, capture.RedirectMode), families: capture.DualStack, ports: both},
		"both families, TPROXY":        {rules: only(capture.DualStack, capture.TProxyMode), families: capture.DualStack, ports: both},
		"IPv6 goes past":               {rules: only(capture.IPv4, capture.RedirectMode), families: capture.DualStack, ports: both, reasons: []string{"inbound IPv6: a connection to [::6]:15002 did not come to the proxy"}},
		"IPv6 is not the pod's":        {rules: only(capture.IPv4, capture.RedirectMode), families: capture.IPv4, ports: both},
		"no rules":                     {families: capture.IPv4, ports: both, reasons: []string{"inbound IPv4: a connection to 127.0.0.6:15002 did not come to the proxy: connection refused"}},
		"the app accepts in our place": {families: capture.IPv4, ports: both, taken: "127.0.0.6:15002", reasons: []string{"inbound IPv4: a connection to 127.0.0.6:15002 did not come to the proxy: another program accepted it"}},
		"outbound is not captured":     {rules: func(in *capture.Intent) { in.Families, in.OutboundRanges = capture.DualStack, capture.Ranges{} }, families: capture.DualStack, ports: both},
		"few ports, TPROXY": {rules: func(in *capture.Intent) {
			in.Families, in.Mode, in.InboundPorts = capture.DualStack, capture.TProxyMode, capture.Ports{List: []uint16{8080}}
		}, families: capture.DualStack, ports: both},
		"inbound is not captured, TPROXY": {rules: func(in *capture.Intent) {
			in.Families, in.Mode, in.InboundPorts = capture.DualStack, capture.TProxyMode, capture.Ports{}
		}, families: capture.DualStack, ports: both},
		"-o and -c are for the proof too": {rules: func(in *capture.Intent) {
			in.Families, in.ExcludeOutboundPorts, in.ExcludeInterfaces = capture.DualStack, []uint16{15002}, []string{"l+", "eth0"}
		}, families: capture.DualStack, ports: both},
		"the source port is taken":        {rules: only(capture.IPv4, capture.RedirectMode), families: capture.IPv4, ports: both, taken: "0.0.0.0:15002", notes: []string{"not proved since T: outbound IPv4: a connection to ADDRESS cannot be tried: another program has port 15002"}},
		"the agent does not accept":       {rules: only(capture.IPv4, capture.RedirectMode), families: capture.IPv4, ports: []uint16{outbound}, reasons: []string{"a connection to the proxy's port itself fails: no answer"}},
		"nothing accepts, without a rule": {families: capture.IPv4, reasons: []string{"a connection to the proxy's port itself fails: connection refused"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some only wait
			pod := captured(t, tt.rules)
			if tt.taken != "" {
				bind(t, pod, 1000, tt.taken)
			}
			in := capture.Defaults()
			if tt.rules != nil {
				tt.rules(&in)
			}
			s := question{Families: tt.families, Ports: tt.ports, Transparent: in.Mode == capture.TProxyMode}.ask(t, pod)
			notes := said(s)
			ok := s.Ready == (len(tt.reasons) == 0) && slices.Equal(notes, tt.notes)
			for _, want := range tt.reasons {
				ok = ok && strings.Contains(s.String(), want)
			}
			if !ok {
				t.Errorf("%+v; want the notes %q, the reasons %q", s, tt.notes, tt.reasons)
			}
		})
	}
}

// These parts of a note differ from run to run.
var (
	sinceWhen = regexp.MustCompile(`since \S+:`)
	addresses = regexp.MustCompile(`192\.0\.2\.\d+:\d+|\[2001:db8::\S+\]:\d+`)
)

// said returns the notes of a status, without what differs from run to run.
func said(s Status) (notes []string) {
	for _, n := range s.Notes {
		notes = append(notes, addresses.ReplaceAllString(sinceWhen.ReplaceAllString(n.Message, "since T:"), "ADDRESS"))
	}
	return notes
}

// Without a route nothing is proved, and nothing counts as gone. The note has the reason.
func TestCaptureWithoutARoute(t *testing.T) {
	both := []uint16{contract.InboundPort, contract.OutboundPort}
	out := func(family, why string) string {
		return "not proved since T: outbound " + family + ": a connection to ADDRESS cannot be tried: " + why
	}
	six := "not proved since T: inbound IPv6: a connection to [::6]:15002 cannot be tried: network is unreachable; " + out("IPv6", "network is unreachable")
	if got := said(question{Families: capture.IPv6, Ports: both}.ask(t, ns.Pod(t))); !slices.Equal(got, []string{six}) {
		t.Errorf("notes %q; want %q", got, six)
	}
	for kind, why := range map[string]string{"unreachable": "no route to host", "prohibit": "permission denied", "blackhole": "invalid argument"} {
		pod := captured(t, func(in *capture.Intent) { in.Families = capture.IPv4 })
		pod.IP("route", "add", kind, "192.0.2.0/24")
		s := question{Families: capture.IPv4, Ports: both}.ask(t, pod)
		if got := said(s); !s.Ready || !slices.Equal(got, []string{out("IPv4", why)}) {
			t.Errorf("%s: ready %t, notes %q; want %q", kind, s.Ready, got, out("IPv4", why))
		}
	}
}

// The standby keeps from Envoy what is sent to a destination of a proof, also when the proof is over.
func TestDestinationsAreKnownToTheStandby(t *testing.T) {
	for _, w := range []way{{}, {six: true}, {outbound: true}, {outbound: true, six: true}} {
		for i := range firstTries * 254 * contract.ProofPorts {
			w.tries = i % firstTries
			if to := w.destination(); !contract.CaptureProof(to) {
				t.Fatalf("%s, after %d tries: %s is no address of a proof", &w, w.tries, to)
			}
		}
	}
}

// Rules of an older release may not capture the inbound proof. That they are there is known by the outbound one, by a
// port that they do not exempt.
func TestRulesOfAnOlderRelease(t *testing.T) {
	pod := captured(t, func(in *capture.Intent) { in.Families = capture.IPv4 })
	pod.Do(func() {
		if out, err := exec.Command("nft", "insert", "rule", "inet", "outrider", "output", "tcp", "dport", "15000-16000", "return").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	q := question{Families: capture.IPv4, Ports: []uint16{contract.InboundPort, contract.OutboundPort}, Rounds: firstTries}
	if s := q.ask(t, pod); !s.Ready || !slices.Equal(said(s), []string{InNotProved}) {
		t.Errorf("%+v; want the note %q", s, InNotProved)
	}
	q.Rounds--
	if s := q.ask(t, pod); s.Ready {
		t.Errorf("ready after %d rounds", q.Rounds)
	}
}

// A packet that no rule redirects dies in the first router, and is the only one of its connection.
func TestAProofThatNothingRedirectsDiesNear(t *testing.T) {
	for _, to := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		at := ln.Addr().(*net.TCPAddr).AddrPort()
		level, hops, class := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_TOS
		if at.Addr().Is6() {
			level, hops, class = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_TCLASS
		}
		p := NewCapture(CaptureOptions{}).begin(&way{six: at.Addr().Is6()}, at)
		defer p.end()
		ttl, err := unix.GetsockoptInt(p.fd, level, hops)
		tos, err2 := unix.GetsockoptInt(p.fd, level, class)
		if err := errors.Join(p.err, err, err2); err != nil || ttl != 1 || tos != contract.ProofClass {
			t.Errorf("%s: packets live for %d hops, and have the class %#x: %v", to, ttl, tos, err)
		}
	}
}

// Only the connection that was made proves anything: an application that knows the addresses cannot pass for it.
func TestTheArrivalOfAnotherIsNone(t *testing.T) {
	c := NewCapture(CaptureOptions{})
	inbound, outbound := netip.AddrPortFrom(contract.ProofInbound, contract.ProbePort), netip.MustParseAddrPort("192.0.2.7:15002")
	in, out := make(chan struct{}, 1), make(chan struct{}, 1)
	c.expects[endsOf(40000, inbound)], c.expects[endsOf(contract.ProbePort, outbound)] = in, out
	at := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	for _, other := range [][2]netip.AddrPort{
		{at("127.0.0.1:40001"), inbound}, {at("127.0.0.1:40000"), at("127.0.0.6:80")}, {at("10.9.0.2:15002"), at("192.0.2.8:15002")},
	} {
		if c.Arrived(other[0], other[1]) || len(in)+len(out) > 0 {
			t.Errorf("%s is taken for a proof", other)
		}
	}
	// Address translation may have changed the source port of an outbound proof.
	if !c.Arrived(at("127.0.0.1:40000"), inbound) || !c.Arrived(at("10.9.0.2:1234"), outbound) || len(in) != 1 || len(out) != 1 {
		t.Error("a proof is not recognised")
	}
}

// A packet that came to a router was not captured, whatever the router answers. That no route leads out is known
// before anything is sent.
func TestARoutersAnswerIsAnAbsence(t *testing.T) {
	if unrouted(answer(unix.EHOSTUNREACH)) || !unrouted(unix.EHOSTUNREACH) || answer(0) != nil {
		t.Error("a router's answer counts as a missing route, or the other way round")
	}
}

// A life scripts what the attempts of a Capture find, in turn, by way; the last entry is repeated.
type life map[string][]verdict

var lives sync.Mutex

func (l life) try(_ context.Context, w *way) result {
	lives.Lock() // several ways are tried at a time
	defer lives.Unlock()
	list := l[w.String()]
	if len(list) > 1 {
		l[w.String()] = list[1:]
	}
	return result{list[0], fmt.Sprintf("%s %d", w, list[0])}
}

func TestCaptureForLife(t *testing.T) {
	const in4, out4, in6, out6 = "inbound IPv4", "outbound IPv4", "inbound IPv6", "outbound IPv6"
	some := func(n int, v verdict) []verdict { return slices.Repeat([]verdict{v}, n) }
	always := func(v verdict) []verdict { return some(1, v) }
	// after returns the verdicts of a way that works for n rounds.
	after := func(n int, then ...verdict) []verdict { return append(some(n, arrived), then...) }
	tests := map[string]struct {
		life life
		want []string // changes, with the time since the start
		lost uint64
	}{
		"it works": {
			life{in4: always(arrived), out4: always(arrived), in6: always(arrived), out6: always(arrived)},
			[]string{"0s ready"}, 0},
		"all is gone, and comes back": {
			life{in4: after(2, absent, absent, absent, absent, arrived), out4: after(2, absent, absent, absent, absent, arrived), in6: after(2, absent, absent, absent, absent, arrived), out6: after(2, absent, absent, absent, absent, arrived)},
			[]string{"0s ready", "1m2s capture-not-in-place: inbound IPv4 1; outbound IPv4 1; inbound IPv6 1; outbound IPv6 1", "1m12s ready"}, 1},
		"one way is gone": {
			life{in4: always(arrived), out4: always(arrived), in6: always(arrived), out6: after(1, absent)},
			[]string{"0s ready", "32s capture-not-in-place: outbound IPv6 1"}, 1},
		"one way is back before the other": {
			life{in4: after(1, absent, absent, absent, arrived), out4: after(1, absent, absent, absent, absent, arrived), in6: always(noRoute), out6: always(noRoute)},
			[]string{"0s ready", "32s capture-not-in-place: inbound IPv4 1; outbound IPv4 1", "37s capture-not-in-place: outbound IPv4 1", "42s ready"}, 1},
		"two absences are chance": {
			life{in4: after(1, absent, absent, arrived), out4: always(arrived), in6: always(arrived), out6: always(arrived)},
			[]string{"0s ready"}, 0},
		"a busy machine is no evidence": {
			life{in4: after(1, unknown), out4: after(1, unknown), in6: always(arrived), out6: always(arrived)},
			[]string{"0s ready"}, 0},
		"a busy machine does not bring capture back": {
			life{in4: after(1, absent, absent, absent, unknown), out4: always(arrived), in6: always(arrived), out6: always(arrived)},
			[]string{"0s ready", "32s capture-not-in-place: inbound IPv4 1"}, 1},
		"what was lost is not back while another way is in doubt": {
			life{in4: after(1, absent, absent, absent, arrived), out4: after(4, unknown, arrived), in6: always(arrived), out6: always(arrived)},
			[]string{"0s ready", "32s capture-not-in-place: inbound IPv4 1", "42s ready"}, 1},
		"what was lost is not back because its route is gone": {
			life{in4: always(arrived), out4: after(1, absent, absent, absent, noRoute), in6: always(arrived), out6: always(arrived)},
			[]string{"0s ready", "32s capture-not-in-place: outbound IPv4 1"}, 1},
		"rules that are there do not capture the inbound proof": {
			life{in4: append(some(firstTries+1, absent), arrived, absent), out4: always(arrived), in6: always(arrived), out6: always(arrived)},
			[]string{"0s capture-not-in-place: inbound IPv4 1", "300ms ready", "1m32.3s capture-not-in-place: inbound IPv4 1"}, 1},
		"no rules are there": {
			life{in4: always(absent), out4: append(some(firstTries, absent), arrived), in6: always(arrived), out6: always(arrived)},
			[]string{"0s capture-not-in-place: inbound IPv4 1"}, 0},
		"rules come late": {
			life{in4: append(some(10, absent), arrived), out4: append(some(firstTries, absent), arrived, absent), in6: always(arrived), out6: always(arrived)},
			[]string{"0s capture-not-in-place: inbound IPv4 1", "1s ready", "33s capture-not-in-place: outbound IPv4 1"}, 1},
		"it is not there at the start": {
			life{in4: append(some(3, absent), arrived), out4: always(arrived), in6: always(arrived), out6: always(arrived)},
			[]string{"0s capture-not-in-place: inbound IPv4 1", "300ms ready"}, 0},
		"nothing is known at the start": {
			life{in4: append(some(2, unknown), arrived), out4: always(arrived), in6: always(arrived), out6: always(arrived)},
			[]string{"0s capture-not-in-place: inbound IPv4 0", "200ms ready"}, 0},
		"outbound was never seen to work": {
			life{in4: always(arrived), out4: append(some(firstTries, absent), arrived, absent), in6: always(arrived), out6: always(arrived)},
			[]string{"0s ready"}, 0},
		"outbound is seen late, and counts from then on": {
			life{in4: always(arrived), out4: []verdict{absent, unknown, arrived, absent}, in6: always(arrived), out6: always(arrived)},
			[]string{"0s ready", "1m32s capture-not-in-place: outbound IPv4 1"}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := NewCapture(CaptureOptions{IPv4: true, IPv6: true})
				c.try = maps.Clone(tt.life).try
				b := New(Options{Conditions: []Condition{CaptureRules}})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				var got []string
				began := time.Now()
				done := make(chan struct{})
				go func() {
					defer close(done)
					for s := range b.Subscribe(ctx, Outbound) {
						if line := s.String(); !strings.Contains(line, rules[CaptureRules].begin) && (len(got) == 0 || !strings.HasSuffix(got[len(got)-1], " "+line)) {
							got = append(got, time.Since(began).String()+" "+line)
						}
					}
				}()
				synctest.Wait()
				c.Keep(ctx, b)
				<-done
				if !slices.Equal(got, tt.want) || c.Lost() != tt.lost || c.InPlace() != b.Status(Outbound).Ready {
					t.Errorf("got %q, lost %d, in place %t; want %q, %d", got, c.Lost(), c.InPlace(), tt.want, tt.lost)
				}
			})
		})
	}
}

// Of what nothing is known, a note says so after some rounds, and the metric counts since then.
func TestWhatIsNotKnownIsSaid(t *testing.T) {
	const note = "not proved since 2000-01-01T00:00:30Z: %s 0"
	lives := life{
		"inbound IPv4":  {arrived, unknown},
		"outbound IPv4": {arrived, unknown, unknown, absent, unknown},
		"outbound IPv6": {arrived, unknown},
	}
	for way, verdicts := range lives {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := life{"inbound IPv4": {arrived}, "outbound IPv4": {arrived}, "inbound IPv6": {arrived}, "outbound IPv6": {arrived}}
			l[way] = slices.Clone(verdicts)
			c := NewCapture(CaptureOptions{IPv4: true, IPv6: true})
			c.try = l.try
			b := New(Options{Conditions: []Condition{CaptureRules}})
			var got []string
			for time.Since(began) < time.Minute {
				pause := c.round(t.Context(), b)
				got = nil
				for _, n := range b.Status(Outbound).Notes {
					got = append(got, n.Message)
				}
				if time.Since(began) < proofInterval+2*proofAgain && len(got) > 0 {
					t.Errorf("%s: at once %q", way, got)
				}
				time.Sleep(pause)
			}
			if want := fmt.Sprintf(note, way); !slices.Equal(got, []string{want}) || !c.InPlace() || c.Unproved() != time.Since(began)-proofInterval {
				t.Errorf("%s: notes %q, not proved for %v; want %q, %v", way, got, c.Unproved(), want, time.Since(began)-proofInterval)
			}
			l[way] = []verdict{arrived}
			if c.round(t.Context(), b); len(b.Status(Outbound).Notes) > 0 || c.Unproved() != 0 {
				t.Errorf("%s: proved, and %+v, %v", way, b.Status(Outbound).Notes, c.Unproved())
			}
		})
	}
}

// While the standby would not get a proof, nothing is tried, and what was tried just before does not count.
func TestCaptureIsNotTriedWhileThePodStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provable, tries := true, 0
		c := NewCapture(CaptureOptions{IPv4: true, Provable: func() bool { return provable }})
		c.try = func(context.Context, *way) result { tries++; return result{verdict: arrived} }
		b := New(Options{Conditions: []Condition{CaptureRules}})
		c.round(t.Context(), b)
		rounds := 0
		c.try = func(_ context.Context, w *way) result {
			tries++
			if w.outbound {
				rounds++
				provable = rounds < absences // the pod stops during this round
			}
			return result{absent, "stopping"}
		}
		for range 2 * absences {
			c.round(t.Context(), b)
		}
		if !b.Status(Outbound).Ready || !c.InPlace() || tries != 2+2*absences {
			t.Errorf("%v after %d attempts", b.Status(Outbound), tries)
		}
	})
}

// Limits of a check that gets an answer, and of one that never gets any.
const (
	answers  = 2 * time.Minute
	noAnswer = 2 * time.Second
)

func TestDNSMustAnswer(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var rcode atomic.Int32
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if rcode.Load() < 0 {
				continue
			}
			conn.WriteTo([]byte("a stray answer"), from)
			buf[2] |= 0x80
			buf[3] = byte(rcode.Load())
			conn.WriteTo(buf[:n], from)
		}
	}()
	for name, tt := range map[string]struct {
		rcode int32
		err   string
	}{
		"an address":   {0, ""},
		"no such name": {3, ""},
		"no table yet": {2, "SERVFAIL"},
		"no answer":    {-1, "waiting for an answer"},
		"no listener":  {-2, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			rcode.Store(tt.rcode)
			limit := answers
			if tt.rcode == -1 {
				limit = noAnswer
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			address := conn.LocalAddr().String()
			if tt.rcode == -2 {
				address = "127.0.0.1:1"
			}
			_, err := DNS(address)(ctx)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
	if err := dnsOutcome([]byte("x")); err == nil {
		t.Error("a short answer is one")
	}
}
