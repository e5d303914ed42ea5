package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/late"
	"outrider.dev/test/process"
)

// silentPorts are undeclared ports of a server: on the first the client sends first, on the
// second the server does.
const silentEcho, silentGreeter = 9000, 9001

// A silentServer has a machine without a proxy that calls it, and can do so by mutual TLS.
type silentServer struct {
	*harness.Agent
	outsider *harness.Pod
	config   *tls.Config
}

func newSilentServer(t *testing.T, tproxy bool) *silentServer {
	t.Helper()
	w := harness.New(t)
	w.Family = harness.Dual
	if tproxy {
		w.Capture = []string{"-m", "TPROXY"}
	}
	var certs string
	client, server := pair(w, func(c, s *harness.Pod) {
		certs = filepath.Join(c.Dir, "work", "output")
		c.Env = []string{"OUTPUT_CERTS=" + certs}
		if tproxy {
			for _, p := range []*harness.Pod{c, s} {
				p.Env = append(p.Env, "ISTIO_META_INTERCEPTION_MODE=TPROXY")
				p.Capabilities = []uintptr{unix.CAP_NET_ADMIN}
			}
		}
	})
	listen := func(port int) net.Listener {
		return harness.Listen(w, server.Pod.Namespace, harness.AppUser, fmt.Sprintf(":%d", port))
	}
	go each(listen(silentEcho), func(c net.Conn) { io.Copy(c, c) })
	go each(listen(silentGreeter), func(c net.Conn) {
		fmt.Fprintln(c, "greeting")
		io.Copy(c, c)
	})
	s := &silentServer{Agent: server, outsider: w.Machine("outsider")}
	process.Eventually(t, "the client's certificate", func() bool {
		chain, err := os.ReadFile(filepath.Join(certs, identity.ChainFile))
		if err != nil {
			return false
		}
		key, err := os.ReadFile(filepath.Join(certs, identity.KeyFile))
		if err == nil {
			s.config, err = late.Config(chain, key)
		}
		return err == nil
	}, client)
	return s
}

func (s *silentServer) dial(ctx context.Context, network, to string) (net.Conn, error) {
	return harness.Dialer(s.outsider.Namespace, 0)(ctx, network, to)
}

// late calls the server's ports with first bytes that come late.
func (s *silentServer) late(t *testing.T) {
	ping, greeted := says("PING"), says("greeting")
	var calls []late.Call
	for _, a := range s.Pod.Addresses {
		for _, port := range []uint16{90, silentEcho} { // 90 declares tcp
			to := netip.AddrPortFrom(a, port).String()
			calls = append(calls, late.Call{Name: to + ", plain", To: to, Talk: ping})
			for _, ends := range [][]int{nil, {1}, {5}, {300}} {
				calls = append(calls, late.Call{Name: fmt.Sprint(to, ", TLS in pieces ", ends), To: to, Talk: late.Hello(s.config, ping, ends...)})
			}
		}
		calls = append(calls, late.Call{Name: "a greeting", To: netip.AddrPortFrom(a, silentGreeter).String(), Talk: greeted})
	}
	late.Run(t, s.dial, calls)
}

func says(line string) func(net.Conn) error {
	return func(c net.Conn) error {
		if line != "greeting" {
			io.WriteString(c, line+"\n")
		}
		if got, err := firstLine(c); got != line+"\n" {
			return fmt.Errorf("%q, %v; want %q", got, err, line)
		}
		return nil
	}
}

// Where either side may send first, a late ClientHello is mutual TLS, late bytes are plain text,
// and a server's greeting arrives.
func TestSilentClients(t *testing.T) {
	t.Parallel()
	server := newSilentServer(t, false)
	server.late(t)
	ping, dial := says("PING"), server.dial
	t.Run("a thousand", func(t *testing.T) {
		const n = 1000
		var all []net.Conn
		for range n {
			c, err := dial(t.Context(), "tcp", fmt.Sprintf("%s:%d", server.Pod.Address, silentEcho))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			all = append(all, c)
		}
		process.Eventually(t, "all are silent", func() bool { return server.silent() == n }, server)
		for _, c := range all[:n/2] {
			if err := ping(c); err != nil {
				t.Error(err)
			}
		}
		process.Eventually(t, "half of them are silent", func() bool { return server.silent() == n/2 }, server)
		t.Logf("agent: %d KiB", harness.Resident(server.PID())>>10)
		for _, c := range all {
			c.Close()
		}
		process.Eventually(t, "none is left", func() bool { return server.silent() == 0 }, server)
	})
	t.Run("no application", func(t *testing.T) {
		c, err := dial(t.Context(), "tcp", server.Pod.Address.String()+":9009")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := firstLine(c); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
	t.Run("another process of the pod", func(t *testing.T) {
		c, err := harness.Dialer(server.Pod.Namespace, harness.AppUser)(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", contract.RelaySilent))
		if err == nil { // else it was reset before dial returned
			defer c.Close()
			// The first call after the reset returns it, and later ones return EOF.
			if _, err = io.WriteString(c, "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"); err == nil {
				_, err = firstLine(c)
			}
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
	})
	t.Run("STRICT", func(t *testing.T) {
		server.Pod.World.Manifest("strict", strict)
		to := fmt.Sprintf("%s:%d", server.Pod.Address, silentEcho)
		plain := func() error {
			c, err := dial(t.Context(), "tcp", to)
			if err != nil {
				return err
			}
			defer c.Close()
			time.Sleep(late.Pause)
			return ping(c)
		}
		process.Eventually(t, "plain text is refused", func() bool { return plain() != nil }, server)
		c, err := dial(t.Context(), "tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		time.Sleep(late.Pause)
		process.Eventually(t, "the agent has no silent connection", func() bool { return server.silent() == 0 }, server)
		if err := late.Hello(server.config, ping)(c); err != nil {
			t.Error(err)
		}
	})
}

// silent is how many connections are, as the agent's metrics say.
func (s *silentServer) silent() (n int) {
	m := regexp.MustCompile(`(?m)^outrider_agent_silent_connections (\d+)$`).FindStringSubmatch(s.Get(contract.StatusPort, "/metrics").Body)
	if m != nil {
		fmt.Sscan(m[1], &n)
	}
	return n
}

// The same where the kernel hands inbound connections over as they are.
func TestSilentClientsTPROXY(t *testing.T) {
	t.Parallel()
	newSilentServer(t, true).late(t)
}
