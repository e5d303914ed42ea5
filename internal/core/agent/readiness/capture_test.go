package readiness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// asAgent names the environment variable that makes the test binary check capture as the agent
// does: as the proxy's user, without privileges.
const asAgent = "OUTRIDER_TEST_CAPTURE"

func TestMain(m *testing.M) {
	raw := os.Getenv(asAgent)
	if raw == "" {
		os.Exit(m.Run())
	}
	var c question
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Limit)
	defer cancel()
	note, err := Captures(c.All...)(ctx)
	fmt.Println(note)
	if err != nil {
		fmt.Println(err)
	}
}

type question struct {
	All   []Capture
	Limit time.Duration
}

// Limits of a check that gets an answer, and of one that never gets any.
const (
	answers  = 2 * time.Minute
	noAnswer = 2 * time.Second
)

// inPod runs the checks in a pod, as the agent or as a privileged process.
func inPod(t *testing.T, pod *ns.Namespace, privileged bool, limit time.Duration, all []Capture) (note string, err error) {
	t.Helper()
	pod.Do(func() {
		if privileged {
			if err := unix.Setfsuid(1337); err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			note, err = Captures(all...)(ctx)
			return
		}
		raw, _ := json.Marshal(question{all, limit})
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), asAgent+"="+string(raw))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1337, Gid: 1337}}
		out, failed := cmd.Output()
		if failed != nil {
			t.Error(failed)
		}
		var text string
		if note, text, _ = strings.Cut(strings.TrimSuffix(string(out), "\n"), "\n"); text != "" {
			err = errors.New(text)
		}
	})
	return note, err
}

func TestCaptureIsProvedByBehaviour(t *testing.T) {
	ns.RequireRoot(t)
	const waits = "did not come to the proxy" // error for a connection without an answer
	both := func(six bool) []Capture { return []Capture{{Inbound: true, Outbound: true, IPv6: six}} }
	four, six := both(false), both(true)
	all := slices.Concat(four, six)
	one := func(in *capture.Intent) { in.Families = capture.IPv4 }
	dual := func(in *capture.Intent) { in.Families = capture.DualStack }
	tests := map[string]struct {
		rules    func(*capture.Intent)
		ports    []string // ports with a listener in the proxy's place
		captures []Capture
		root     bool
		note     string
		err      string
	}{
		"both, by a privileged process":                  {dual, []string{"15001", "15006"}, four, true, "", ""},
		"both by IPv6, by a privileged process":          {dual, []string{"15001", "15006"}, six, true, "", ""},
		"both by both":                                   {dual, []string{"15001", "15006"}, all, true, "", ""},
		"both, and outbound cannot be tried":             {dual, []string{"15001", "15006"}, all, false, NotProved, ""},
		"IPv6 goes past":                                 {one, []string{"15001", "15006"}, all, false, "", "inbound: a connection to [::6]:15002 " + waits},
		"no rules":                                       {nil, []string{"15001", "15006"}, four, true, "", "inbound: a connection to 127.0.0.6:15002 was not redirected"},
		"no rules, seen without a privilege":             {nil, []string{"15001", "15006"}, four, false, "", "was not redirected"},
		"no rules, and none are required":                {nil, nil, []Capture{{}}, true, "", ""},
		"no outbound rules":                              {nil, []string{"15001"}, []Capture{{Outbound: true}}, true, "", "outbound: a connection to 192.0.2.1:15002 " + waits},
		"no outbound rules for IPv6":                     {one, []string{"15001", "15006"}, []Capture{four[0], {Outbound: true, IPv6: true}}, true, "", "outbound: a connection to [2001:db8::1]:15002 " + waits},
		"no listener for inbound connections, they wait": {dual, nil, all, true, "", "inbound: a connection to 127.0.0.6:15002 " + waits},
		"no listener for outbound connections":           {dual, []string{"15006"}, four, true, "", "outbound: a connection to 192.0.2.1:15002 " + waits},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some only wait
			pod := captured(t, tt.rules)
			for _, port := range tt.ports {
				bind(t, pod, 1337, "[::]:"+port)
			}
			limit := answers
			if strings.HasSuffix(tt.err, waits) {
				limit = noAnswer
			}
			note, err := inPod(t, pod, tt.root, limit, tt.captures)
			if note != tt.note || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("note %q, error %v; want %q, %q", note, err, tt.note, tt.err)
			}
		})
	}
}

// If there is no route for an IP family, no connection of it can bypass the proxy, so the check
// succeeds with a note.
func TestCaptureWithoutARoute(t *testing.T) {
	pod := ns.Pod(t)
	note, err := inPod(t, pod, true, answers, []Capture{{Inbound: true, Outbound: true, IPv6: true}})
	if note != NoRoute || err != nil {
		t.Errorf("note %q, error %v; want %q", note, err, NoRoute)
	}
}

func TestAPacketThatNothingRedirectsDiesNear(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var ttl atomic.Int64
	d := net.Dialer{Control: func(network, address string, c syscall.RawConn) error {
		if err := dieAtFirstRouter(network, address, c); err != nil {
			return err
		}
		return c.Control(func(fd uintptr) {
			n, _ := unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL)
			ttl.Store(int64(n))
		})
	}}
	conn, err := d.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if ttl.Load() != 1 {
		t.Errorf("packets live for %d hops", ttl.Load())
	}
	if err := dialAs(t.Context(), os.Getuid(), "127.0.0.1:1"); !errors.Is(err, unix.EPERM) {
		t.Errorf("a proof as the proxy itself proves nothing: %v", err)
	}
}

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
