package netns

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/agent/standby"
	"outrider.dev/internal/core/capture"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// standbyEnv makes the test binary the process that has the standby listeners: the
// proxy's user, without privileges, in the pod.
const standbyEnv = "OUTRIDER_TEST_STANDBY"

// TestStandbyProcess is not a test. It reads commands, one a line, and answers each.
func TestStandbyProcess(t *testing.T) {
	var options []standby.Options
	if os.Getenv(standbyEnv) == "" {
		t.Skip("a process of other tests")
	}
	if err := json.Unmarshal([]byte(os.Getenv(standbyEnv)), &options); err != nil {
		t.Fatal(err)
	}
	var list []*standby.Standby
	for _, o := range options {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
		s, err := standby.Listen(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	fmt.Println("listening")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var errs []error
		counts := []standby.Counts{}
		for _, s := range list {
			switch in.Text() {
			case "ready":
				errs = append(errs, untilReady(s))
			case "gone":
				s.Gone()
			}
			counts = append(counts, s.Counts())
		}
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(counts)
		fmt.Printf("%d %s\n", time.Now().UnixNano(), b)
	}
	os.Exit(0)
}

// untilReady polls often: what is measured is the standby, not how the agent finds out
// that Envoy listens.
func untilReady(s *standby.Standby) error {
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		err := s.Ready()
		if !errors.Is(err, standby.ErrNotListening) || time.Since(start) > enough {
			return err
		}
	}
}

// A holder is a process with standby listeners for both directions.
type holder struct {
	t       testing.TB
	process *process.Process
	in      io.Writer
	out     *bufio.Reader
}

const outTwin, inTwin = 15007, 15016

func startHolder(t testing.TB, pod *ns.Namespace, mode capture.Mode, most int) *holder {
	t.Helper()
	relay := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port) }
	// The options as far as they can be sent to a process.
	type plain struct {
		Port        uint16
		Relay       netip.AddrPort
		Max         int
		Transparent bool
	}
	options, err := json.Marshal([]plain{
		{Port: 15001, Relay: relay(outTwin), Max: most},
		{Port: 15006, Relay: relay(inTwin), Max: most, Transparent: mode == capture.TProxyMode},
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestStandbyProcess$") // its path is root's alone
	cmd.Env = append(os.Environ(), standbyEnv+"="+string(options))
	h := &holder{t: t}
	out, err1 := cmd.StdoutPipe()
	in, err2 := cmd.StdinPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	h.in, h.out = in, bufio.NewReader(out)
	h.process = startAsProxy(t, pod, cmd, mode)
	if got, err := h.out.ReadString('\n'); got != "listening\n" {
		t.Fatalf("the standby's first line is %q, %v", got, err)
	}
	return h
}

// startAsProxy starts a process as the proxy's user in the pod; for transparent
// proxying with the one capability that this takes.
func startAsProxy(t testing.TB, pod *ns.Namespace, cmd *exec.Cmd, mode capture.Mode) *process.Process {
	t.Helper()
	if mode == capture.TProxyMode {
		cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_NET_ADMIN}}
	}
	return process.Start(t, cmd, process.Options{In: pod.Do, User: proxyUser})
}

// do sends a command. It returns when the command was done, and the standbys' counts.
func (h *holder) do(command string) (time.Time, [2]standby.Counts) {
	h.t.Helper()
	fmt.Fprintln(h.in, command)
	answer, err := h.out.ReadString('\n')
	nanos, rest, _ := strings.Cut(answer, " ")
	n, _ := strconv.ParseInt(nanos, 10, 64)
	var counts [2]standby.Counts
	if err == nil {
		err = json.Unmarshal([]byte(rest), &counts)
	}
	if err != nil {
		h.t.Fatalf("the standby answers %q to %q: %v", answer, command, err)
	}
	return time.Unix(0, n), counts
}

// holding waits until so many connections are held.
func (h *holder) holding(n int) {
	h.t.Helper()
	process.Eventually(h.t, fmt.Sprintf("%d connections held", n), func() bool {
		_, c := h.do("counts")
		return c[0].Held+c[1].Held == n
	}, h.process)
}

// envoyConfig has a listener for each direction as capture needs it, and its twin for
// the standby. Like those of package xds/resource they have an address for each family.
func envoyConfig(transparent bool) string {
	listener := func(name string, port, twin int, chains string) string {
		address := fmt.Sprintf(`"address": {"socket_address": {"address": "0.0.0.0", "port_value": %d}},
			"additional_addresses": [{"address": {"socket_address": {"address": "::", "port_value": %[1]d}}}]`, port)
		const filter = `{"name": "%s", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.listener.%s"}}`
		return fmt.Sprintf(`{"name": "%s", %s, "transparent": %t, "listener_filters": [%s], "filter_chains": [%s]},
			{"name": "%[1]s-early", "address": {"socket_address": {"address": "127.0.0.1", "port_value": %[6]d}}, "listener_filters": [%[7]s], "filter_chains": [%[5]s]}`,
			name, address, transparent && name == "in", fmt.Sprintf(filter, "o", "original_dst.v3.OriginalDst"), chains,
			twin, fmt.Sprintf(filter, "p", "proxy_protocol.v3.ProxyProtocol"))
	}
	chain := func(prefix, cluster string) string {
		return fmt.Sprintf(`{"name": "%[2]s", "filter_chain_match": {"prefix_ranges": [{"address_prefix": "%[1]s", "prefix_len": 0}]}, "filters": [{"name": "t", "typed_config":
			{"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "%[2]s", "cluster": "%[2]s"}}]}`, prefix, cluster)
	}
	cluster := func(name, source string) string {
		bind := ""
		if source != "" {
			bind = fmt.Sprintf(`, "upstream_bind_config": {"source_address": {"address": "%s", "port_value": 0}}`, source)
		}
		return fmt.Sprintf(`{"name": "%s", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "60s",
			"circuit_breakers": {"thresholds": [{"max_connections": 100000, "max_pending_requests": 100000}]}%s}`, name, bind)
	}
	return fmt.Sprintf(`{"static_resources": {"listeners": [%s, %s], "clusters": [%s, %s, %s]}}`,
		listener("out", 15001, outTwin, chain("0.0.0.0", "away")+","+chain("::", "away")),
		listener("in", 15006, inTwin, chain("0.0.0.0", "app4")+","+chain("::", "app6")),
		cluster("away", ""), cluster("app4", "127.0.0.6"), cluster("app6", "::6"))
}

// envoyBinary is the real one, or the test is skipped.
func envoyBinary(t testing.TB) string {
	t.Helper()
	ns.RequireRoot(t)
	path, err := filepath.Abs(cmp.Or(os.Getenv("ENVOY"), filepath.Join("..", "..", ".cache", "envoy", "envoy")))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Skipf("no Envoy (make deps): %v", err)
	}
	return path
}

func startEnvoy(t testing.TB, pod *ns.Namespace, mode capture.Mode) *process.Process {
	t.Helper()
	binary, err := os.Open(envoyBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	// By its descriptor: the path may be root's alone, and Envoy runs as the proxy's user.
	cmd := exec.Command("/proc/self/fd/3", "--config-yaml", envoyConfig(mode == capture.TProxyMode),
		"--concurrency", "2", "--disable-hot-restart", "-l", "error")
	cmd.ExtraFiles = []*os.File{binary}
	return startAsProxy(t, pod, cmd, mode)
}

// firstLine is what the server sends first.
func firstLine(c net.Conn) (string, error) {
	c.SetDeadline(time.Now().Add(enough))
	var buf [64]byte
	n, err := c.Read(buf[:])
	return strings.TrimSpace(string(buf[:n])), err
}

func after(start time.Time, list []time.Time) (out []time.Duration) {
	for _, at := range list {
		out = append(out, max(0, at.Sub(start)))
	}
	return out
}

// spread describes durations in one line.
func spread(what string, list []time.Duration) string {
	slices.Sort(list)
	return fmt.Sprintf("%s: n %d, min %s, median %s, max %s", what, len(list), list[0].Round(10*time.Microsecond),
		list[len(list)/2].Round(10*time.Microsecond), list[len(list)-1].Round(10*time.Microsecond))
}

func standbyTopology(t testing.TB, mode capture.Mode) *topology {
	t.Helper()
	top := newTopology(t)
	capturing(t, top.pod, nftables, everything(func(in *capture.Intent) { in.Mode = mode }))
	serve(t, top.peer, 0, capture.Listener{Proto: capture.TCP, Port: 80}, "peer")
	serve(t, top.pod, 1000, capture.Listener{Proto: capture.TCP, Port: 8080}, "app")
	// The way to the peer is found before anything is measured: of many first packets
	// at once, those that wait for a neighbour's answer are dropped.
	for _, w := range ways[:2] {
		c := w.call(top, enough)
		c.uid, c.gid = proxyUser, proxyUser
		if got, err := c.talk(); got != "peer" {
			t.Fatalf("%q, %v from %s", got, err, c.dst)
		}
	}
	return top
}

// Connections made before Envoy exists get what they would have got from it, in both
// directions and families; so do those made after it was killed.
func TestStandbyBeforeEnvoyAndAfter(t *testing.T) {
	envoyBinary(t)
	t.Parallel()
	for _, mode := range []capture.Mode{capture.RedirectMode, capture.TProxyMode} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			top := standbyTopology(t, mode)
			h := startHolder(t, top.pod, mode, 0)
			var delays []time.Duration
			for range tier.Times(2, 3) {
				delays = append(delays, oneLife(t, top, h, mode)...)
			}
			t.Log(spread("handed over to first byte of the server", delays))
		})
	}
}

// oneLife is one of Envoy's; it returns how long after it each early connection was served.
func oneLife(t *testing.T, top *topology, h *holder, mode capture.Mode) []time.Duration {
	var early []net.Conn
	for _, w := range ways {
		c, again, err := w.call(top, enough).attempt()
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		defer c.Close()
		if again != 0 {
			t.Errorf("%s: %d SYNs sent again; want that it is held, and not parked", w.name, again)
		}
		early = append(early, c)
	}
	h.holding(len(early))
	envoy := startEnvoy(t, top.pod, mode)
	served := make([]time.Time, len(early))
	var callers sync.WaitGroup
	for i, c := range early {
		callers.Go(func() {
			exchange(t, ways[i].name, c)
			served[i] = time.Now()
		})
	}
	ready, _ := h.do("ready")
	callers.Wait()
	delays := after(ready, served)
	time.Sleep(250 * time.Millisecond) // past the grace
	_, before := h.do("counts")
	for _, w := range ways {
		c, err := w.call(top, enough).dial()
		if err != nil {
			t.Fatalf("%s, with Envoy: %v", w.name, err)
		}
		exchange(t, w.name+", with Envoy", c)
		c.Close()
	}
	if _, after := h.do("counts"); after[0].Relayed != before[0].Relayed || after[1].Relayed != before[1].Relayed {
		t.Errorf("connections came past Envoy: %+v, then %+v", before, after)
	}
	envoy.Kill()
	h.do("gone")
	return delays
}

// exchange reads the name of the server, sends a line, closes its side, and reads the
// line back.
func exchange(t *testing.T, name string, c net.Conn) {
	want := "peer"
	if strings.HasPrefix(name, "inbound") {
		want = "app"
	}
	if got, err := firstLine(c); got != want {
		t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		return
	}
	io.WriteString(c, "hello")
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "hello" {
		t.Errorf("%s, after half-closing: %q, %v", name, got, err)
	}
}

func TestStandbyHoldsTwoThousand(t *testing.T) {
	envoyBinary(t)
	t.Parallel()
	const n = 2000
	top := standbyTopology(t, capture.RedirectMode)
	h := startHolder(t, top.pod, capture.RedirectMode, n)
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	for i := range n {
		c, again, err := ways[i%2].call(top, enough).attempt()
		if err != nil || again != 0 {
			t.Fatalf("connection %d: %v, %d SYNs sent again", i, err, again)
		}
		conns = append(conns, c)
	}
	h.holding(n)
	if _, err := ways[0].call(top, enough).talk(); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("one past the bound: %v, want connection reset", err)
	}
	startEnvoy(t, top.pod, capture.RedirectMode)
	served := make([]time.Time, n)
	var failed atomic.Int64
	var first atomic.Value
	var callers sync.WaitGroup
	for i, c := range conns {
		callers.Go(func() {
			if got, err := firstLine(c); got != "peer" {
				failed.Add(1)
				first.CompareAndSwap(nil, fmt.Sprintf("connection %d: %q, %v", i, got, err))
			}
			served[i] = time.Now()
		})
	}
	ready, _ := h.do("ready")
	callers.Wait()
	delays := after(ready, served)
	t.Log(spread("2,000 at once, handed over to first byte of the server", delays))
	if failed.Load() > 0 {
		t.Errorf("%d of %d not served, the first: %v", failed.Load(), n, first.Load())
	}
}

// What is addressed to a capture port itself is closed, whoever calls.
func TestStandbyDoesNotCallItself(t *testing.T) {
	envoyBinary(t)
	t.Parallel()
	top := standbyTopology(t, capture.RedirectMode)
	h := startHolder(t, top.pod, capture.RedirectMode, 0)
	for _, user := range []int{1000, proxyUser} {
		for _, dst := range []string{"127.0.0.1:15001", "[::1]:15006", "10.9.0.2:15001", "[fd09::2]:15006"} {
			if got, err := (call{from: top.pod, uid: user, gid: user, dst: netip.MustParseAddrPort(dst), limit: enough}).talk(); err != io.EOF && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("user %d to %s: %q, %v; want it closed", user, dst, got, err)
			}
		}
	}
	if _, c := h.do("counts"); c[0].Looped+c[1].Looped != 8 {
		t.Errorf("%+v, want 8 closed", c)
	}
}

// Nothing is lost when Envoy takes over, and when it is killed and comes back nothing
// but what it had.
func TestStandbyUnderLoad(t *testing.T) {
	envoyBinary(t)
	t.Parallel()
	top := standbyTopology(t, capture.RedirectMode)
	h := startHolder(t, top.pod, capture.RedirectMode, 0)
	var c crowd
	c.gather(top, 16)
	t.Cleanup(c.end)
	start := time.Now()
	envoy := startEnvoy(t, top.pod, capture.RedirectMode)
	h.do("ready")
	c.passes(t, 2000)
	t.Logf("hand-over: %s, %.0f a second", &c, float64(c.made.Load())/time.Since(start).Seconds())
	if c.cut.Load() != 0 || c.refused.Load() != 0 {
		t.Errorf("hand-over: %s; want all served; %v", &c, c.first.Load())
	}
	kills := tier.Times(2, 6)
	for range kills {
		envoy.Kill()
		h.do("gone")
		envoy = startEnvoy(t, top.pod, capture.RedirectMode)
		h.do("ready")
		c.passes(t, 200)
	}
	c.end()
	_, counts := h.do("counts")
	t.Logf("killed %d times: %s; %+v", kills, &c, counts)
	if c.refused.Load() != 0 {
		t.Errorf("killed %d times: %s; want none refused; %v", kills, &c, c.first.Load())
	}
}
