package agent

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	health1 "google.golang.org/grpc/health/grpc_health_v1"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// ports are the ports of the app in these tests, in the form that [harness.World.Service] takes.
var ports = []string{"http 80", "http2-two 81", "grpc-three 82", "tcp-echo 90", "mysql-first 91"}

const vip = "10.96.0.10"

// app serves all protocols in a pod. Its answers contain its name.
func app(p *harness.Pod) {
	t := p.World.T
	t.Helper()
	name := p.Name
	web := http.NewServeMux()
	web.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", name, r.Proto) })
	web.HandleFunc("/peer", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("X-Forwarded-Client-Cert"))
	})
	web.HandleFunc("/socket", socket)
	serve := func(port int) net.Listener {
		return harness.Listen(p.World, p.Namespace, harness.AppUser, fmt.Sprintf(":%d", port))
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	for _, port := range []int{80, 81} {
		s := &http.Server{Handler: web, Protocols: &protocols}
		go s.Serve(serve(port))
		t.Cleanup(func() { s.Close() })
	}
	rpc := grpc.NewServer()
	health1.RegisterHealthServer(rpc, health.NewServer())
	go rpc.Serve(serve(82))
	t.Cleanup(rpc.Stop)
	go each(serve(90), func(c net.Conn) { io.Copy(c, c) })
	go each(serve(91), func(c net.Conn) {
		fmt.Fprintf(c, "%s speaks first\n", name)
		io.Copy(io.Discard, c)
	})
}

func each(l net.Listener, f func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			f(c)
		}()
	}
}

// socket serves a minimal WebSocket: after the upgrade it echoes bytes. It needs no frames, because a proxy does not
// look at them.
func socket(w http.ResponseWriter, r *http.Request) {
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer c.Close()
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	io.Copy(c, buffered)
}

func firstLine(c net.Conn) (string, error) {
	c.SetDeadline(time.Now().Add(process.Patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	return line, err
}

// lone starts a mesh with a single pod, adds the variables env to its environment, and waits until the proxy is
// ready.
func lone(t *testing.T, env ...string) *harness.Agent {
	t.Helper()
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	p := w.Pod("app")
	p.Env = env
	a := p.Agent()
	a.Ready()
	return a
}

// two starts a mesh with a client pod, and a server pod behind a Service at vip, and waits until both proxies are ready.
func two(t *testing.T) (w *harness.World, client, server *harness.Agent) {
	t.Helper()
	w = harness.New(t)
	client, server = pair(w, func(_, _ *harness.Pod) {})
	return w, client, server
}

// pair starts the control plane of a world, a client, and a server behind a Service at vip (in a dual-stack
// world also at vip6). The function change, unless nil, configures the two pods before they start.
func pair(w *harness.World, change func(client, server *harness.Pod), plane ...string) (client, server *harness.Agent) {
	w.T.Helper()
	addresses := vip
	if w.Family == harness.Dual {
		addresses += " " + vip6
	}
	w.Service("server", addresses, "server", ports...)
	w.Serve(plane...)
	c, s := w.Pod("client"), w.Pod("server")
	change(c, s)
	app(s)
	w.Known(1, 2)
	client, server = c.Agent(), s.Agent()
	client.Ready()
	server.Ready()
	return client, server
}

// spread summarizes durations in one line.
func spread(what string, list []time.Duration) string {
	if len(list) == 0 {
		return what + ": none"
	}
	slices.Sort(list)
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("%s: n %d, min %s, median %s, max %s", what, len(list), round(list[0]), round(list[len(list)/2]), round(list[len(list)-1]))
}
