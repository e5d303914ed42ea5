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
)

// The ports of an app in these tests, as a Service has them.
var ports = []string{"http 80", "http2-two 81", "grpc-three 82", "tcp-echo 90", "mysql-first 91"}

const vip = "10.96.0.10"

// app serves all protocols in a pod. It says its own name.
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

// socket is a WebSocket as far as a proxy sees it: after the upgrade bytes come back.
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

// firstLine is what comes over a connection.
func firstLine(c net.Conn) (string, error) {
	c.SetDeadline(time.Now().Add(15 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	return line, err
}

// two are pods with proxies that are ready: one that calls, one that serves at vip.
func two(t *testing.T, plane ...string) (w *harness.World, client, server *harness.Agent) {
	t.Helper()
	w = harness.New(t)
	w.Service("server", vip, "server", ports...)
	w.Serve(plane...)
	client, server = agents(w)
	return w, client, server
}

func agents(w *harness.World) (client, server *harness.Agent) {
	w.T.Helper()
	c, s := w.Pod("client"), w.Pod("server")
	app(s)
	w.Known(1, 2)
	client, server = c.Agent(), s.Agent()
	client.Ready()
	server.Ready()
	return client, server
}

// spread describes durations in one line.
func spread(what string, list []time.Duration) string {
	if len(list) == 0 {
		return what + ": none"
	}
	slices.Sort(list)
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("%s: n %d, min %s, median %s, max %s", what, len(list), round(list[0]), round(list[len(list)/2]), round(list[len(list)-1]))
}
