package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/sockets"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// draining is a part of the log line that the agent writes when it begins to drain.
const draining = `"state":"draining"`

// stopped stops an agent by SIGTERM. It returns the time until the agent's exit, and the exit status.
func stopped(a *harness.Agent) (time.Duration, int) {
	begin := time.Now()
	a.Signal(syscall.SIGTERM)
	status := a.Exit()
	return time.Since(begin), status
}

// why returns the reason for the end of the drain, from the agent's log.
func why(a *harness.Agent) string {
	_, rest, _ := strings.Cut(a.Log(), `"msg":"drained","reason":"`)
	reason, _, _ := strings.Cut(rest, `"`)
	return reason
}

// An application without connections makes its first call a second after the pod is stopped. The call is served.
func TestStopServesALateCall(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	client, _ := pair(w, func(c, _ *harness.Pod) { c.Env = []string{`PROXY_CONFIG={"terminationDrainDuration": "15s"}`} })
	begin := time.Now()
	client.Signal(syscall.SIGTERM)
	// The call is served even though Envoy is killed meanwhile.
	client.Logs(draining)
	harness.KillAndWatch(t, client.Envoy())
	time.Sleep(time.Second)
	if err := fresh(client.Pod, "http://"+vip+"/", "server HTTP/1.1")(); err != nil {
		t.Error(err)
	}
	if s, ok := client.Status(); !ok || !s.Ready {
		t.Errorf("while it drains: %v, %v", s, ok)
	}
	if status := client.Exit(); status != 0 {
		t.Errorf("status %d", status)
	}
	took := time.Since(begin)
	t.Logf("left after %s: %s", took.Round(time.Millisecond), why(client))
	if took < 15*time.Second {
		t.Errorf("left after %s, before the drain time of 15s", took)
	}
}

// An agent that is stopped before it is ready exits without a drain if no client waits.
func TestStopBeforeReady(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	p := w.Pod("early")
	w.Plane().Kill()

	w.Run("no client waits", func(t *testing.T) {
		a := p.Agent()
		a.Unready("certificate-missing", "is not reached")
		envoy := a.Envoy()
		noSockets(t, p)
		// The agent has just proved capture. The connection that it has opened for the proof does not count as a client.
		a.Logs(`"msg":"condition holds","condition":"capture"`)
		took, status := stopped(a)
		process.AwaitEnd(t, envoy)
		t.Logf("left after %s: %s", took.Round(time.Millisecond), why(a))
		if status != 0 || why(a) != "it was never ready, and no client waits for it" {
			t.Errorf("status %d, %q; want 0, and no drain time", status, why(a))
		}
	})

	w.Run("the app waits at its gate", func(t *testing.T) {
		p.Env = []string{"ISTIO_META_APP_CONTAINERS=app"}
		a := p.Agent()
		gate := p.Gate("--after", "outrider-proxy is healthy", "--", "sleep", "60")
		process.Eventually(t, "the gate waits", func() bool { return strings.Contains(p.State("app"), `"phase":"waiting"`) }, gate)
		l := harness.Listen(w, p.Namespace, harness.AppUser, "0.0.0.0:8080") // a listener of a container that is not the application
		defer l.Close()
		a.Unready("certificate-missing", "is not reached")
		took, status := stopped(a)
		t.Logf("left after %s: %s", took.Round(time.Millisecond), why(a))
		if status != 0 || why(a) != "all applications have ended" {
			t.Errorf("status %d, %q; want 0, and no drain time", status, why(a))
		}
		gate.Kill()
	})
}

// noSockets waits until only the proxy's user has sockets in a pod, that is, until the client has closed its
// connection.
func noSockets(t *testing.T, p *harness.Pod) {
	t.Helper()
	process.Eventually(t, "no other user has a socket", func() bool {
		n, err := 0, error(nil)
		p.Do(func() { n, err = sockets.Others(p.User) })
		return err == nil && n == 0
	})
}

// A connection may wait for a proxy that was stopped before it was ready. Such a connection is not cut: it is served
// if the proxy becomes ready after all, and it keeps the proxy running as any other connection does.
func TestStopBeforeReadyWithAHeldConnection(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Service("server", vip, "server", ports...)
	w.Serve()
	c, s := w.Pod("client"), w.Pod("server")
	app(s)
	w.Known(1, 2)
	s.Agent().Ready()
	early := func(t *testing.T) (*harness.Agent, net.Conn) {
		w.Plane().Kill()
		a := c.Agent()
		a.Unready("no-control-plane", "")
		conn, err := harness.Dialer(c.Namespace, harness.AppUser)(t.Context(), "tcp", vip+":91")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		process.Eventually(t, "it is held", func() bool {
			return strings.Contains(a.Get(15020, "/metrics").Body, "outrider_agent_held_connections 1\n")
		}, a)
		a.Signal(syscall.SIGTERM)
		a.Logs(draining)
		return a, conn
	}

	w.Run("it gets ready", func(t *testing.T) {
		begin := time.Now()
		a, conn := early(t)
		w.Serve()
		if got, err := firstLine(conn); got != "server speaks first\n" {
			t.Errorf("%q, %v; want that it is served", got, err)
		}
		conn.Close()
		status := a.Exit()
		took := time.Since(begin)
		t.Logf("left after %s: %s", took.Round(time.Millisecond), why(a))
		if status != 0 || took < 5*time.Second || c.Message() != "" {
			t.Errorf("status %d after %s, message %q; want 0, the drain time of 5s, and nothing to say", status, took, c.Message())
		}
	})

	w.Run("it does not", func(t *testing.T) {
		// Remove the certificate, because an agent that has one uses its stored configuration.
		if err := os.RemoveAll(filepath.Join(c.Dir, "work", "certs")); err != nil {
			t.Fatal(err)
		}
		c.Env = []string{`PROXY_CONFIG={"terminationDrainDuration": "1s"}`}
		c.Args = []string{"--grace", "5s"}
		begin := time.Now()
		a, conn := early(t)
		conn.SetReadDeadline(time.Now().Add(process.Patience))
		_, err := conn.Read(make([]byte, 1))
		cut := time.Since(begin)
		status := a.Exit()
		t.Logf("cut after %s: %s", cut.Round(time.Millisecond), c.Message())
		if status != 0 || cut < 4*time.Second || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("status %d, %v after %s; want 0, and most of the grace of 5s", status, err, cut)
		}
		for _, want := range []string{"stopped before it was ready (certificate-missing: ", "until the applications have ended (connections held: 1, ", "the wait was interrupted; left: connections held: 1, "} {
			if !strings.Contains(c.Message(), want) {
				t.Errorf("message %q; want %q", c.Message(), want)
			}
		}
	})
}

// The proxy of an application with open sockets runs until the grace period ends. After the drain time it refuses
// connections from outside. The status port answers all the time.
func TestStopWithOpenSockets(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	client, server := pair(w, func(_, s *harness.Pod) {
		s.Env = []string{`PROXY_CONFIG={"drainDuration": "2s", "terminationDrainDuration": "1s"}`}
		s.Args = []string{"--grace", "20s"}
	})
	c, s := client.Pod, server.Pod
	answered := make(chan time.Time, 1)
	go func() { // records the time of the status port's last answer
		for server.Get(15020, "/healthz/ready").Err == nil {
			time.Sleep(10 * time.Millisecond)
		}
		answered <- time.Now()
	}()
	// Make calls from outside the mesh, each on a new connection.
	outsider := w.Machine("outsider")
	request := fresh(outsider, "http://"+s.Address.String()+"/", "server HTTP/1.1")
	if err := request(); err != nil {
		t.Fatal(err)
	}
	// Connections that are established before the end of the drain are not reset.
	dialing := harness.NewLoad(8, 0, func() error {
		if err := request(); !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		return nil
	})
	begin := time.Now()
	server.Signal(syscall.SIGTERM)
	var refused time.Duration
	for refused == 0 && time.Since(begin) < 18*time.Second {
		if err := request(); err != nil {
			refused = time.Since(begin)
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("after %s: %v; want it refused", refused, err)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	judge(t, "new connections, until they are refused", dialing)
	t.Logf("new inbound connections are refused after %s", refused.Round(time.Millisecond))
	if refused < 2*time.Second {
		t.Errorf("refused after %s; want the drain time of 2s first", refused)
	}
	// The app's outbound calls still succeed after the drain.
	back := func(net.Conn) {}
	go each(harness.Listen(w, c.Namespace, harness.AppUser, "0.0.0.0:9999"), back)
	conn, err := harness.Dialer(s.Namespace, harness.AppUser)(t.Context(), "tcp", c.Address.String()+":9999")
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if err != io.EOF {
		t.Errorf("an own call after that: %v; want that it is answered", err)
	}
	status := server.Exit()
	took := time.Since(begin)
	t.Logf("left after %s: %s", took.Round(time.Millisecond), why(server))
	if status != 0 || took < 18*time.Second {
		t.Errorf("status %d after %s; want 0 and most of the grace of 20s", status, took)
	}
	if last := (<-answered).Sub(begin); last < 18*time.Second {
		t.Errorf("the status port answered until %s only; the agent ended after %s", last, took)
	}
}

// The proxy exits when it has proof that the applications have exited.
func TestStopByProof(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Service("server", vip, "server", ports...)
	w.Serve()
	s := w.Pod("server")
	app(s)
	w.Known(1, 1)
	s.Agent().Ready()

	gates := map[string][]string{
		"the gate reports the end of the app":               {"--after", "outrider-proxy is healthy"},
		"a gate that waits for nothing reports it likewise": nil,
	}
	for name, flags := range gates { // any order: each case has its own pod
		w.Run(name, func(t *testing.T) {
			p := w.Pod(fmt.Sprintf("gated-%d", len(flags)))
			p.Env = []string{"ISTIO_META_APP_CONTAINERS=app"}
			a := p.Agent()
			// The app exits a second after SIGTERM.
			gate := p.Gate(append(flags, "--", "sh", "-c", `trap 'sleep 1; exit 0' TERM; while :; do sleep 0.05; done`)...)
			a.Ready()
			process.Eventually(t, "the app runs behind its gate", func() bool { return strings.Contains(p.State("app"), `"phase":"running"`) }, gate, a)
			a.Signal(syscall.SIGTERM)
			gate.Signal(syscall.SIGTERM)
			gate.Exit()
			ended := time.Now()
			status := a.Exit()
			took := time.Since(ended)
			t.Logf("the proxy left %s after the app: %s", took.Round(time.Millisecond), why(a))
			if status != 0 || why(a) != "all applications have ended" {
				t.Errorf("status %d, %q\n%s", status, why(a), a.Log())
			}
		})
	}

	w.Run("the kubelet ends applications first", func(t *testing.T) {
		p := w.Pod("ordered")
		p.Env = []string{"OUTRIDER_ORDERED_STOP=true"}
		l := harness.Listen(w, p.Namespace, harness.AppUser, "0.0.0.0:8080")
		defer l.Close()
		a := p.Agent()
		a.Ready()
		took, status := stopped(a)
		t.Logf("left after %s: %s", took.Round(time.Millisecond), why(a))
		if status != 0 || why(a) != "all applications have ended" {
			t.Errorf("status %d, %q", status, why(a))
		}
	})
}

// Callers of a stopped pod are refused at once: if they were parked, they would wait for a proxy that never starts.
// Callers of a running application are parked, because only its proxy is restarted.
func TestStopRefusesCallers(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Capture = []string{"--park-limit", "1h"} // so that parked connections stay parked
	w.Serve()
	outsider := w.Machine("outsider")
	p := w.Pod("ordered")
	p.Env = []string{"OUTRIDER_ORDERED_STOP=true"}
	call := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := harness.Dialer(outsider.Namespace, 0)(ctx, "tcp", p.Address.String()+":8080")
		if err == nil {
			defer c.Close()
			if _, err = fmt.Fprintln(c, "hello"); err == nil {
				_, err = firstLine(c)
			}
		}
		return err
	}
	a := p.Agent()
	a.Ready()
	stopped(a)
	if err := call(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the pod has stopped: %v; want it refused", err)
	}
	l := harness.Listen(w, p.Namespace, harness.AppUser, "0.0.0.0:8080")
	defer l.Close()
	go each(l, func(c net.Conn) { io.Copy(c, c) })
	a = p.Agent()
	a.Ready()
	if err := call(); err != nil {
		t.Errorf("a next proxy: %v", err)
	}
	stopped(a)
	waits := make(chan error, 1)
	go func() { waits <- call() }()
	process.Eventually(t, "the call waits", func() bool {
		var waiting []sockets.Socket
		outsider.Do(func() { waiting, _ = sockets.List(sockets.TCP, sockets.Of(sockets.SynSent)) })
		return len(waiting) > 0
	})
	p.Agent().Ready()
	if err := <-waits; err != nil {
		t.Errorf("a call while the proxy alone was started anew: %v; want it served", err)
	}
}

// With Istio's setting EXIT_ON_ZERO_ACTIVE_CONNECTIONS, the proxy exits when no connection is left.
func TestStopOnZeroConnections(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	client, _ := pair(w, func(c, _ *harness.Pod) {
		c.Env = []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", "MINIMUM_DRAIN_DURATION=1s"}
	})
	c := client.Pod
	l := harness.Listen(w, c.Namespace, harness.AppUser, "0.0.0.0:8080") // a listener does not count as a connection
	defer l.Close()
	conn, err := harness.Dialer(c.Namespace, harness.AppUser)(t.Context(), "tcp", vip+":90")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client.Signal(syscall.SIGTERM)
	begin := time.Now()
	time.Sleep(2500 * time.Millisecond)
	fmt.Fprintln(conn, "last words")
	if got, err := firstLine(conn); got != "last words\n" {
		t.Errorf("an open connection, past the minimum: %q, %v", got, err)
	}
	conn.Close()
	closed := time.Now()
	status := client.Exit()
	t.Logf("left %s after the last connection: %s", time.Since(closed).Round(time.Millisecond), why(client))
	if status != 0 || why(client) != "no connection is left" || time.Since(begin) < 2*time.Second {
		t.Errorf("status %d, %q after %s", status, why(client), time.Since(begin))
	}
}

// Control requests are accepted only from within the pod.
func TestOrders(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Service("server", vip, "server", ports...)
	w.Serve()
	s := w.Pod("server")
	app(s)
	w.Known(1, 1)
	const key = "0123456789abcdef"
	s.Env = []string{contract.ProbeKey + "=" + key}
	a := s.Agent()
	a.Ready()
	outsider := w.Machine("outsider")
	c := harness.NewClient(outsider.Namespace, 0)
	defer c.Close()
	for _, order := range []string{"/drain", "/quitquitquit"} {
		if got := c.Do("POST", "http://"+s.Address.String()+":15020"+order, ""); got.Err != nil || got.Status != 403 {
			t.Errorf("%s from outside: %d %q, %v; want 403", order, got.Status, got.Body, got.Err)
		}
		if got := a.Get(15020, order); got.Status != 405 {
			t.Errorf("GET %s: %d; want 405", order, got.Status)
		}
	}
	if got := c.Get("http://" + s.Address.String() + "/"); got.Status != 200 || got.Close {
		t.Errorf("before the stop: %d, Connection: close: %t", got.Status, got.Close)
	}
	// Call the preStop hook, as the kubelet does when it stops the pod.
	hook := ":15020" + contract.StopPath
	if got := c.Get("http://" + s.Address.String() + hook + "/wrong"); got.Status != 403 {
		t.Errorf("the hook with a wrong key: %d %q; want 403", got.Status, got.Body)
	}
	if got := c.Get("http://" + s.Address.String() + hook + "/" + key); got.Err != nil || got.Status != 200 || got.Body != "ok\n" {
		t.Errorf("the hook: %d %q, %v", got.Status, got.Body, got.Err)
	}
	process.Eventually(t, "answers with Connection: close", func() bool {
		got := c.Get("http://" + s.Address.String() + "/")
		return got.Status == 200 && got.Close
	}, a)
	if got := a.Post("/drain"); got.Err != nil || got.Status != 200 {
		t.Errorf("/drain: %d %q, %v", got.Status, got.Body, got.Err)
	}
	begin := time.Now()
	if got := a.Post("/quitquitquit"); got.Err != nil || got.Status != 200 {
		t.Errorf("/quitquitquit: %d %q, %v", got.Status, got.Body, got.Err)
	}
	status := a.Exit()
	t.Logf("left %s after /quitquitquit", time.Since(begin).Round(time.Millisecond))
	if status != 0 {
		t.Errorf("status %d", status)
	}
}
