package mesh

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/test/process"
)

// Routes apply to requests to a service's address with any Host header, which the application receives unchanged.
func TestRoutes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	backend := func(service string, weight uint32) mesh.Backend {
		return mesh.Backend{Namespace: namespace, Name: service, Port: 8080, Weight: weight}
	}
	path := func(kind mesh.TextKind, value string) []mesh.Match {
		return []mesh.Match{{Path: &mesh.Text{Kind: kind, Value: value}}}
	}
	prefix := "/"
	s.route("web", "web", 8080,
		mesh.Route{Matches: path(mesh.Prefix, "/old"), Backends: []mesh.Backend{backend("old", 1)}},
		mesh.Route{Matches: []mesh.Match{{Headers: []mesh.Pair{{Name: "x-to", Text: mesh.Text{Kind: mesh.Exact, Value: "old"}}}}}, Backends: []mesh.Backend{backend("old", 1)}},
		mesh.Route{Matches: path(mesh.Prefix, "/cut"), Backends: []mesh.Backend{backend("web", 1)},
			Filters: []mesh.Filter{{Rewrite: &mesh.Rewrite{Path: &mesh.PathChange{Prefix: &prefix}}}}},
		mesh.Route{Matches: path(mesh.Exact, "/whole"), Backends: []mesh.Backend{backend("web", 1)},
			Filters: []mesh.Filter{{Rewrite: &mesh.Rewrite{Host: "other.example", Path: &mesh.PathChange{Full: "/new"}}}}},
		mesh.Route{Matches: path(mesh.Exact, "/away"), Filters: []mesh.Filter{{Redirect: &mesh.Redirect{Scheme: "https", Host: "other.example", Status: 301}}}},
		mesh.Route{Matches: path(mesh.Prefix, "/moved"), Filters: []mesh.Filter{{Redirect: &mesh.Redirect{Path: &mesh.PathChange{Prefix: &prefix}, Status: 307}}}},
		mesh.Route{Matches: path(mesh.Exact, "/tls"), Filters: []mesh.Filter{{Redirect: &mesh.Redirect{Scheme: "https", Status: 308}}}},
		mesh.Route{Matches: []mesh.Match{{Path: &mesh.Text{Kind: mesh.Exact, Value: "/by-host"}, Headers: []mesh.Pair{{Name: "host", Text: mesh.Text{Kind: mesh.Exact, Value: "old.example"}}}}}, Backends: []mesh.Backend{backend("old", 1)}},
		mesh.Route{Matches: path(mesh.Exact, "/each"), Backends: []mesh.Backend{
			{Namespace: namespace, Name: "web", Port: 8080, Weight: 1, Filters: []mesh.Filter{{Rewrite: &mesh.Rewrite{Path: &mesh.PathChange{Full: "/of-web"}}}}}, backend("old", 1),
		}},
		mesh.Route{Matches: path(mesh.Exact, "/dual"), Backends: []mesh.Backend{backend("dual", 1)}},
		mesh.Route{Matches: path(mesh.Exact, "/missing"), Backends: []mesh.Backend{backend("nowhere", 1)}},
		mesh.Route{Matches: path(mesh.Exact, "/slow"), Backends: []mesh.Backend{backend("web", 1)}, Timeout: 100 * time.Millisecond},
		mesh.Route{Matches: path(mesh.Exact, "/ws"), Backends: []mesh.Backend{backend("web", 1)}},
		mesh.Route{Matches: path(mesh.Exact, "/stream"), Backends: []mesh.Backend{backend("web", 1)}},
		mesh.Route{Matches: path(mesh.Prefix, "/split"), Backends: []mesh.Backend{backend("web", 1), backend("old", 1)}},
	)
	c := s.client.client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	tests := map[string]struct{ path, host, header, want string }{
		"by path":                     {path: "/old/x", want: "200 plain HTTP/1.1 host=10.96.0.1:8080 path=/old/x body=0 <nil>"},
		"not by a longer word":        {path: "/older", want: "404 "},
		"by header":                   {path: "/x", header: "old", want: "200 plain HTTP/1.1 host=10.96.0.1:8080 path=/x"},
		"whatever the host":           {path: "/old", host: "anything.example", want: "200 plain HTTP/1.1 host=anything.example path=/old"},
		"prefix rewritten to nothing": {path: "/cut/x", want: "200 server HTTP/1.1 host=10.96.0.1:8080 path=/x"},
		"path and host rewritten":     {path: "/whole", want: "200 server HTTP/1.1 host=other.example path=/new"},
		"redirect":                    {path: "/away", want: "301 https://other.example/away"},
		"redirect to the same host":   {path: "/moved/x?y=1", host: "web.shop", want: "307 http://web.shop.svc.cluster.local:8080/x?y=1"},
		"redirect to TLS":             {path: "/tls", host: "web.shop:8080", want: "308 https://web.shop.svc.cluster.local/tls"},
		"by the client's host":        {path: "/by-host", host: "old.example", want: "200 plain HTTP/1.1 host=old.example path=/by-host"},
		"not by another host":         {path: "/by-host", host: "new.example", want: "404 "},
		"a backend that has UDP too":  {path: "/dual", want: "200 server HTTP/1.1 host=10.96.0.1:8080 path=/dual"},
		"no such backend":             {path: "/missing", want: "500 "},
		"timeout":                     {path: "/slow", want: "504 "},
		"no rule":                     {path: "/", want: "404 "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequest("GET", "http://10.96.0.1:8080"+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = tt.host
			if tt.header != "" {
				r.Header.Set("X-To", tt.header)
			}
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			if got := fmt.Sprintf("%d %s%s", resp.StatusCode, resp.Header.Get("Location"), b); !strings.HasPrefix(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if resp.Header.Get("Location") != "" && len(b) > 0 {
				t.Errorf("a redirect with a text: %s", b)
			}
			for name := range resp.Header {
				if strings.HasPrefix(name, "X-Outrider") {
					t.Errorf("header %s of ours", name)
				}
			}
		})
	}
	t.Run("both sides of a split", func(t *testing.T) {
		seen := map[string]int{}
		for range 60 {
			name, _, _ := strings.Cut(strings.TrimPrefix(get(c, "http://10.96.0.1:8080/split"), "200 "), " ")
			seen[name]++
		}
		if len(seen) != 2 || seen["server"] < 10 || seen["plain"] < 10 {
			t.Errorf("%v", seen)
		}
	})
	t.Run("a backend's own path", func(t *testing.T) {
		seen := map[string]int{}
		for range 60 {
			got := get(c, "http://10.96.0.1:8080/each")
			fields := strings.Fields(got)
			if len(fields) < 5 {
				t.Fatal(got)
			}
			seen[fields[1]+" "+fields[4]]++
		}
		if len(seen) != 2 || seen["server path=/of-web"] < 10 || seen["plain path=/each"] < 10 {
			t.Errorf("%v", seen)
		}
	})
	t.Run("a stream may be idle, with and without routes", func(t *testing.T) {
		for _, to := range []string{"10.96.0.1:8080", "10.96.0.3:7000"} {
			s.idleStream(t, to)
		}
	})
	t.Run("taken away and back", func(t *testing.T) {
		s.source.change(func(b *build.Builder) { b.Delete((&mesh.RouteSpec{Name: "web", Namespace: namespace}).Key()) })
		s.eventually(t, "no routes", func() bool { return strings.HasPrefix(get(c, "http://10.96.0.1:8080/old"), "200 server") })
		s.route("web", "web", 8080)
		s.eventually(t, "another route", func() bool {
			r, err := c.Get("http://10.96.0.1:8080/old")
			if err != nil {
				return false
			}
			r.Body.Close()
			return r.StatusCode == 200 && r.Header.Get("X-Route") == "web"
		})
	})
}

// idleStream opens a WebSocket, and sends before and after a time without data that is longer than the first-use
// timeout.
func (s *shop) idleStream(t *testing.T, to string) {
	t.Helper()
	c, err := s.client.dial(context.Background(), "", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(process.Patience))
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(c)
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s: %v, %v", to, r, err)
	}
	for _, pause := range []time.Duration{0, 2500 * time.Millisecond} {
		time.Sleep(pause) // the silence under test
		fmt.Fprintln(c, "hello")
		if got, err := in.ReadString('\n'); got != "hello\n" {
			t.Errorf("%s: %q, %v after %s", to, got, err, pause)
		}
	}
}

// websocket serves a WebSocket: after the handshake it echoes all bytes.
func websocket(w http.ResponseWriter) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	io.Copy(c, rw)
}
