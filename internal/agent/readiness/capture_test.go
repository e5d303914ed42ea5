package readiness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
	"outrider.dev/internal/capture/setup"
	"outrider.dev/test/ns"
)

// captured makes a pod whose rules are those of an intent; nil: it has none.
func captured(t *testing.T, change func(*capture.Intent)) *ns.Namespace {
	t.Helper()
	pod := ns.Pod(t)
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

// asAgent, in the environment, makes the test binary ask as the agent would: as the
// proxy's user, without a privilege.
const asAgent = "OUTRIDER_TEST_CAPTURE"

func TestMain(m *testing.M) {
	raw := os.Getenv(asAgent)
	if raw == "" {
		os.Exit(m.Run())
	}
	var c Capture
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	note, err := c.Check(ctx)
	fmt.Println(note)
	if err != nil {
		fmt.Println(err)
	}
}

const askLimit = 500 * time.Millisecond

// inPod asks in a pod, as the agent or as a privileged process.
func inPod(t *testing.T, pod *ns.Namespace, privileged bool, c Capture) (note string, err error) {
	t.Helper()
	pod.Do(func() {
		if privileged || c.As != nil {
			if err := unix.Setfsuid(1337); err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), askLimit)
			defer cancel()
			note, err = c.Check(ctx)
			return
		}
		raw, _ := json.Marshal(map[string]bool{"Inbound": c.Inbound, "Outbound": c.Outbound})
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
	all := Capture{Inbound: true, Outbound: true}
	tests := map[string]struct {
		rules   func(*capture.Intent)
		ports   []string // on which somebody listens in the proxy's place
		capture Capture
		root    bool
		note    string
		err     string
	}{
		"both, by a privileged process":                     {func(*capture.Intent) {}, []string{"15001", "15006"}, all, true, "", ""},
		"both, and outbound cannot be tried":                {func(*capture.Intent) {}, []string{"15001", "15006"}, all, false, NotProved, ""},
		"no rules":                                          {nil, []string{"15001", "15006"}, all, true, "", "inbound: a connection to 127.0.0.6:15002 was not redirected"},
		"no rules, seen without a privilege":                {nil, []string{"15001", "15006"}, all, false, "", "was not redirected"},
		"no rules, and none are wanted":                     {nil, nil, Capture{}, true, "", ""},
		"no outbound rules":                                 {nil, []string{"15001"}, Capture{Outbound: true}, true, "", "outbound: a connection to 192.0.2.1:15002 did not come"},
		"nobody listens for inbound connections, they wait": {func(*capture.Intent) {}, nil, all, true, "", "inbound: a connection to 127.0.0.6:15002 did not come"},
		"nobody listens for outbound connections":           {func(*capture.Intent) {}, []string{"15006"}, all, true, "", "outbound: a connection"},
		"the gate opens the proof": {func(*capture.Intent) {}, []string{"15006"},
			Capture{Inbound: true, Outbound: true, As: func(context.Context, string) error { return nil }}, false, "", ""},
		"the gate says no": {func(*capture.Intent) {}, []string{"15006"},
			Capture{Outbound: true, As: func(context.Context, string) error { return errors.New("it was refused") }}, false, "", "it was refused"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := captured(t, tt.rules)
			for _, port := range tt.ports {
				bind(t, pod, 1337, "0.0.0.0:"+port)
			}
			note, err := inPod(t, pod, tt.root, tt.capture)
			if note != tt.note || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("note %q, error %v; want %q, %q", note, err, tt.note, tt.err)
			}
		})
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
			conn.WriteTo([]byte("a stray answer that is nobody's"), from)
			buf[2] |= 0x80
			buf[3] = byte(rcode.Load())
			conn.WriteTo(buf[:n], from)
		}
	}()
	for name, tt := range map[string]struct {
		rcode int32
		err   string
	}{
		"an address":    {0, ""},
		"no such name":  {3, ""},
		"no table yet":  {2, "SERVFAIL"},
		"no answer":     {-1, "waiting for an answer"},
		"nobody listen": {-2, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			rcode.Store(tt.rcode)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
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
