package mesh

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"outrider.dev/internal/core/mesh"
)

// A request that an endpoint's proxy could not deliver to its application is retried at another endpoint, for every
// HTTP method. A request that an application has received is not retried.
func TestUnreachedIsTriedElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.pod("client", "client").proxied()
	good := w.pod("good", "server").proxied()
	dead := w.pod("dead", "server").proxied() // its application does not listen
	foreign := []*pod{w.pod("foreign1", "foreign"), w.pod("foreign2", "foreign")}
	alone := w.pod("alone", "alone").proxied()
	w.service("web", "10.96.0.1", "server", port(8080, mesh.HTTP), port(9000, mesh.GRPC))
	w.service("routed", "10.96.0.2", "server", port(8080, mesh.HTTP))
	w.service("alone", "10.96.0.3", "alone", port(8080, mesh.HTTP), port(8081, mesh.HTTP))
	w.service("foreign", "10.96.0.4", "foreign", port(8080, mesh.HTTP))
	w.service("foreign-routed", "10.96.0.5", "foreign", port(8080, mesh.HTTP))
	w.route("routed", "routed", 8080)
	w.route("foreign-routed", "foreign-routed", 8080)

	var served atomic.Int64
	serve := func(p *pod, header string) {
		go http.Serve(p.listen(8080), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			n, _ := io.Copy(io.Discard, r.Body)
			if header != "" {
				w.Header().Set(header, "1")
				w.WriteHeader(503)
			}
			fmt.Fprint(w, n)
		}))
	}
	serve(good, "")
	for _, p := range append(foreign, alone) {
		serve(p, "x-outrider-unreached")
	}
	for _, port := range []string{dead.v4.String() + ":8080", dead.v4.String() + ":9000", alone.v4.String() + ":8081"} {
		w.eventually(t, "the proxy has its ports", func() bool {
			resp, err := foreign[0].client().Get("http://" + port)
			if err == nil {
				resp.Body.Close()
			}
			return err == nil // an error means that the proxy has treated the connection as TCP, which is reset
		})
	}
	calls := func(from *pod, method, url string, n, size int, want string) {
		t.Helper()
		served.Store(0)
		for range n {
			r, err := http.NewRequest(method, url, bytes.NewReader(make([]byte, size)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("x-outrider-unreached", "1") // this header must have no effect in a request
			resp, err := from.client().Do(r)
			if err != nil {
				t.Fatalf("%s %s: %v", method, url, err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			passed := resp.Header.Get("x-outrider-unreached") != "" && !w.excuses() // a proxy that treats the connection as TCP does not remove the header
			if got := fmt.Sprintf("%d %s", resp.StatusCode, body); !strings.HasPrefix(got, want) || err != nil || passed {
				t.Errorf("%s %s: %s, %v, %v; want %s", method, url, got, err, resp.Header, want)
			}
		}
		if got := served.Load(); got != int64(n) && strings.HasPrefix(want, "200") {
			t.Errorf("%s %s: the applications got %d requests of %d", method, url, got, n)
		}
	}
	const n = 40
	calls(client, "GET", "http://10.96.0.1:8080/", n, 0, "200 0")
	calls(client, "POST", "http://10.96.0.1:8080/", n, 100_000, "200 100000")
	calls(client, "GET", "http://10.96.0.2:8080/", n, 0, "200 0")
	// The only endpoint has no application: the client gets the response of the endpoint's proxy.
	calls(client, "GET", "http://10.96.0.3:8081/", 2, 0, "503 outrider (inbound): ")
	// The header has no effect if the application set it.
	calls(client, "GET", "http://10.96.0.3:8080/", 2, 0, "503 0")
	if got := served.Load(); got != 2 {
		t.Errorf("an application that forges the header got %d requests of 2", got)
	}
	// The header has no effect in a response of a server without a proxy, which may have got it from another server.
	for _, url := range []string{"http://10.96.0.4:8080/", "http://10.96.0.5:8080/", "http://" + foreign[0].v4.String() + ":8080/"} {
		calls(client, "POST", url, n, 10, "503 10")
		if got := served.Load(); got != n {
			t.Errorf("%s: servers that forge the header got %d requests of %d", url, got, n)
		}
	}
	// A client outside the mesh does not receive the header.
	calls(foreign[0], "GET", "http://"+dead.v4.String()+":8080/", 2, 0, "503 outrider (inbound): ")

	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(good.listen(9000))
	t.Cleanup(server.Stop)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := client.healthClient(t, "10.96.0.1:9000")
	for range n {
		if _, err := c.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("gRPC from %s: %v", client.name, err)
		}
	}
}
