package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/wire"
)

// app starts an application; got is set to its last request.
func app(t *testing.T, tls bool, got *http.Request) (port string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		*got = *r
		io.WriteString(w, "fine "+r.Proto)
	})
	mux.HandleFunc("/bad", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "not yet", http.StatusTeapot) })
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/hangs", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/big", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat("x", 100_000)) })
	s := httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if tls {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port
}

// health starts a handwritten gRPC health server, whose answer depends on the service.
func health(t *testing.T) (port string) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		if r.URL.Path != "/grpc.health.v1.Health/Check" || r.Header.Get("Te") != "trailers" || len(body) < 5 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		service := ""
		if len(body) > 7 {
			service = string(body[7:])
		}
		answers := map[string][]byte{"": {8, 1}, "up": {8, 1, 18, 1, 'x'}, "down": {8, 2}, "odd": {255}, "empty": nil}
		answer, ok := answers[service]
		if !ok {
			w.Header().Set("Grpc-Status", "5")
			w.Header().Set("Grpc-Message", "unknown service")
			return
		}
		w.Header().Set("Trailer", "Grpc-Status")
		w.Write(wire.Frame(answer))
		w.Header().Set("Grpc-Status", "0")
	})}
	go s.Serve(ln)
	t.Cleanup(func() { s.Close() })
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	return port
}

// patient gives a probe a longer timeout than the default of one second.
func patient(probe string) string { return `{"timeoutSeconds": 60, ` + probe[1:] }

func TestProbesAreTheKubelets(t *testing.T) {
	var got http.Request
	plain, secure, grpc := app(t, false, &got), app(t, true, &got), health(t)
	get := func(port, scheme, path string) string {
		return fmt.Sprintf(`{"httpGet": {"path": %q, "port": %s, "scheme": %q, "httpHeaders": [{"name": "Host", "value": "shop.example"}, {"name": "X-Probe", "value": "1"}]}}`, path, port, scheme)
	}
	grpcProbe := func(service string) string {
		return fmt.Sprintf(`{"grpc": {"port": %s, "service": %q}}`, grpc, service)
	}
	tests := map[string]struct {
		probe string
		code  int
		has   string
	}{
		"http":                           {get(plain, "HTTP", "/ok"), 200, "fine HTTP/1.1"},
		"a path without its slash":       {get(plain, "", "ok"), 200, "fine"},
		"https, whatever certificate":    {get(secure, "HTTPS", "/ok"), 200, "fine HTTP/2.0"},
		"the app's own status":           {get(plain, "HTTP", "/bad"), 418, "not yet"},
		"a redirect is followed":         {get(plain, "HTTP", "/here"), 200, "fine"},
		"one to another host is success": {get(plain, "HTTP", "/away"), 200, ""},
		"but not for ever":               {get(plain, "HTTP", "/round"), 500, "10 redirects"},
		"an app that hangs":              {get(plain, "HTTP", "/hangs"), 500, "no answer within 1s"},
		"a body without end":             {get(plain, "HTTP", "/big"), 200, "xxx"},
		"connection refused":             {get("1", "HTTP", "/ok"), 500, "refused"},
		"tcp":                            {`{"tcpSocket": {"port": "` + plain + `"}}`, 200, ""},
		"tcp, connection refused":        {`{"tcpSocket": {"port": 1}}`, 500, "refused"},
		"grpc":                           {`{"grpc": {"port": ` + grpc + `}}`, 200, ""},
		"grpc, a service":                {grpcProbe("up"), 200, ""},
		"grpc, one that is down":         {grpcProbe("down"), 500, "NOT_SERVING"},
		"grpc, unknown":                  {grpcProbe("other"), 500, "status 5: unknown service"},
		"grpc, an empty answer":          {grpcProbe("empty"), 500, "UNKNOWN"},
		"grpc, an invalid answer":        {grpcProbe("odd"), 500, "not a HealthCheckResponse"},
		"grpc to something else":         {`{"grpc": {"port": ` + plain + `}}`, 500, "grpc"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if name != "an app that hangs" {
				tt.probe = patient(tt.probe)
			}
			p, err := ParseProbes(`{"/app-health/app/readyz": `+tt.probe+`}`, "127.0.0.1", 15020)
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, func(o *Options) { o.Probes = p })
			code, body, _ := call(t, "GET", r.url+"/app-health/app/readyz", "User-Agent", "kube-probe/1.34")
			if code != tt.code || !strings.Contains(body, tt.has) || len(body) > probeBody+100 {
				t.Errorf("%d %.200s (%d bytes); want %d %q", code, body, len(body), tt.code, tt.has)
			}
			if name == "http" {
				if host, _, _ := net.SplitHostPort(got.RemoteAddr); host != "127.0.0.6" || got.Host != "shop.example" ||
					got.Header.Get("X-Probe") != "1" || got.Header.Get("User-Agent") != "kube-probe/1.34" {
					t.Errorf("the app got a request from %s: %s %v", got.RemoteAddr, got.Host, got.Header)
				}
			}
		})
	}
}

// A probe may have several headers with the same name, and may replace the kubelet's own.
func TestHeadersOfAProbe(t *testing.T) {
	var got http.Request
	p, err := ParseProbes(`{"/app-health/app/readyz": {"timeoutSeconds": 60, "httpGet": {"path": "/ok", "port": `+app(t, false, &got)+`,
		"httpHeaders": [{"name": "X-A", "value": "1"}, {"name": "x-a", "value": "2"}]}}}`, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(o *Options) { o.Probes = p })
	if code, body, _ := call(t, "GET", r.url+"/app-health/app/readyz", "X-A", "2", "X-B", "3"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	if diff := cmp.Diff(http.Header{"X-A": {"1", "2"}, "User-Agent": {"kube-probe/outrider"}, "Accept": {"*/*"}, "Connection": {"close"}}, got.Header); diff != "" {
		t.Errorf("the app saw %v (-want +got):\n%s", got.Header, diff)
	}
	if err := p.Probe(t.Context(), "app"); err != nil || got.Header.Get("User-Agent") != "kube-probe/outrider" || len(got.Header.Values("X-A")) != 2 {
		t.Errorf("by the agent: %v, %v", err, got.Header)
	}
}

func TestHealthOfAContainer(t *testing.T) {
	var got http.Request
	port := app(t, false, &got)
	hangs := fmt.Sprintf(`{"httpGet": {"path": "/hangs", "port": %s}}`, port)
	at := func(path string) string { return patient(strings.Replace(hangs, "/hangs", path, 1)) }
	p, err := ParseProbes(`{"/app-health/both/startupz": `+at("/bad")+`, "/app-health/both/readyz": `+at("/here")+`,
		"/app-health/starts/startupz": `+at("/bad")+`, "/app-health/lives/livez": `+at("/ok")+`, "/app-lifecycle/hook/prestopz": `+at("/ok")+`,
		"/app-health/slow/readyz": `+hangs+`, "/app-health/absent/readyz": {"tcpSocket": {"port": 1}}}`, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"absent", "both", "slow", "starts"}, p.Containers()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{
		"both": "<nil>", "starts": "status 418", "slow": "no answer within 1s", "absent": "connect: connection refused",
		"lives": "lives has no readiness or startup probe",
	} {
		if got := fmt.Sprint(p.Probe(t.Context(), name)); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
	var made []string
	p.Made = func(container string, err error) { made = append(made, fmt.Sprint(container, " ", err)) }
	r := start(t, func(o *Options) { o.Probes = p })
	for _, path := range []string{"/app-health/both/readyz", "/app-health/both/startupz", "/app-health/starts/startupz", "/app-health/lives/livez", "/app-lifecycle/hook/prestopz"} {
		call(t, "GET", r.url+path)
	}
	if diff := cmp.Diff([]string{"both <nil>", "starts status 418"}, made); diff != "" {
		t.Errorf("Made was called with (-want +got):\n%s", diff)
	}
}

func TestAProbeOverIPv6(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("needs IPv6")
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	p, err := ParseProbes(`{"/app-health/app/livez": {"tcpSocket": {"port": `+port+`}}}`, "::1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if code, _, err := p.try(ctx, "/app-health/app/livez", p.byPath["/app-health/app/livez"], ""); code != 200 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}

// The startup probe of a gated container is answered when the command has started up, or when the
// probe's timeout is over. The liveness probe does not reach the app while the gate holds.
func TestProbesOfAGate(t *testing.T) {
	var got http.Request
	at := patient(`{"httpGet": {"path": "/ok", "port": ` + app(t, false, &got) + `}}`)
	p, err := ParseProbes(`{"/app-health/a/startedz": {"timeoutSeconds": 60}, "/app-health/late/startedz": {}, "/app-health/a/livez": `+at+`, "/app-health/a/readyz": `+at+`}`, "127.0.0.1", 15020)
	if err != nil {
		t.Fatal(err)
	}
	if want, gated := []string{"a", "late"}, p.Gated(); !slices.Equal(gated, want) {
		t.Errorf("Gated is %q, want %q", gated, want)
	}
	if health := p.Containers(); !slices.Equal(health, []string{"a"}) {
		t.Errorf("%q have a probe of their health", health)
	}
	asked, opened := make(chan string, 2), make(chan struct{})
	p.Started = func(ctx context.Context, container string) error {
		asked <- container
		select {
		case <-opened:
			return nil
		case <-ctx.Done():
			return errors.New("its command has not begun")
		}
	}
	held := true
	p.Held = func(container string) bool { return held && container == "a" }
	r := start(t, func(o *Options) { o.Probes = p })
	if code, body, _ := call(t, "GET", r.url+"/app-health/late/startedz"); code != 500 || !strings.Contains(body, "within 1s") || <-asked != "late" {
		t.Errorf("in its time: %d %s", code, body)
	}
	answered := make(chan int)
	go func() {
		code, _, _ := call(t, "GET", r.url+"/app-health/a/startedz")
		answered <- code
	}()
	if name := <-asked; name != "a" {
		t.Errorf("Started is called for %q", name)
	}
	if code, body, _ := call(t, "GET", r.url+"/app-health/a/livez"); code != 200 || body != "held by its gate\n" || got.URL != nil {
		t.Errorf("held: %d %q, and the app got %v", code, body, got.URL)
	}
	close(opened)
	if code := <-answered; code != 200 {
		t.Errorf("the gate has opened: %d", code)
	}
	held = false
	if code, body, _ := call(t, "GET", r.url+"/app-health/a/livez"); code != 200 || got.URL == nil {
		t.Errorf("not held: %d %q, and the app got %v", code, body, got.URL)
	}
}

func TestAnUnknownProbeNamesTheKnown(t *testing.T) {
	p, err := ParseProbes(`{"/app-lifecycle/b/prestopz": {"tcpSocket": {"port": 1}}, "/app-health/a/livez": {"tcpSocket": {"port": 1}}}`, "")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(o *Options) { o.Probes = p })
	if code, body, _ := call(t, "GET", r.url+"/app-health/c/livez"); code != 404 || !strings.Contains(body, "known: /app-health/a/livez, /app-lifecycle/b/prestopz") {
		t.Errorf("%d %s", code, body)
	}
	if code, body, _ := call(t, "GET", r.url+"/app-lifecycle/b/prestopz"); code != 500 {
		t.Errorf("%d %s", code, body)
	}
	r = start(t, nil)
	if code, body, _ := call(t, "GET", r.url+"/app-health/c/livez"); code != 404 || !strings.Contains(body, "known: none") {
		t.Errorf("%d %s", code, body)
	}
}

func TestProbesThatCannotWork(t *testing.T) {
	for in, want := range map[string]string{
		`[]`:                            "JSON object",
		`{"/healthz": {}}`:              "/healthz: want /app-health/",
		`{"/app-health/a/b/livez": {}}`: "want /app-health/",
		`{"/app-health/a/livez": {}}`:   "want one of httpGet, tcpSocket, grpc; got 0",
		`{"/app-health/a/livez": {"tcpSocket": {"port": 1}, "grpc": {"port": 2}}}`: "got 2",
		`{"/app-health/a/livez": {"tcpSocket": {}}}`:                               "port is missing",
		`{"/app-health/a/livez": {"tcpSocket": {"port": "http"}}}`:                 "want a number",
		`{"/app-health/a/livez": {"tcpSocket": {"port": 65536}}}`:                  "want a number",
		`{"/app-health/a/livez": {"tcpSocket": {"port": 15020}}}`:                  "the agent's own",
		`{"/app-health/a/livez": {"httpGet": {"port": 1, "scheme": "FTP"}}}`:       "scheme",
		`{"/app-health/a/livez": {"httpGet": {"port": 1}, "timeoutSeconds": -1}}`:  "timeoutSeconds",
		`{"/app-health/a/startedz": {"tcpSocket": {"port": 1}}}`:                   "the gate's state is the answer",
		`{"/app-health/a/startedz": {"timeoutSeconds": -1}}`:                       "timeoutSeconds",
		`{"/app-lifecycle/a/startedz": {}}`:                                        "want /app-health/",
	} {
		if _, err := ParseProbes(in, "", 15020, 15021); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", in, err, want)
		}
	}
	if p, err := ParseProbes(" ", ""); err != nil || len(p.Paths()) != 0 {
		t.Errorf("none: %v, %v", p, err)
	}
}

func FuzzParseProbes(f *testing.F) {
	f.Add(`{"/app-health/a/livez": {"httpGet": {"path": "x", "port": 80, "httpHeaders": [{"name": "a", "value": "b"}]}, "timeoutSeconds": 3}}`)
	f.Add(`{"/app-health/a/livez": null}`)
	f.Add(`{"/app-health/a/startedz": {"timeoutSeconds": 10}}`)
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := ParseProbes(raw, "", 15020)
		for path, probe := range p.byPath {
			if err != nil || (len(probe.ports()) != 1) != isStarted(path) || !isProbePath(path) {
				t.Errorf("%s: %+v, %v", path, probe, err)
			}
		}
	})
}

func FuzzParseTargets(f *testing.F) {
	f.Add(`{"scrape": "true", "port": "8080", "path": "/m"}`)
	f.Add(`{"targets": [{"port": "80", "path": "/a"}, {"port": "81"}]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		targets, _ := ParseTargets(raw, 15030)
		for _, target := range targets {
			if target.Port == 0 || target.Port == 15020 || target.Port == 15030 || target.Path[0] != '/' {
				t.Errorf("%+v", target)
			}
			if _, err := json.Marshal(target); err != nil {
				t.Error(err)
			}
		}
	})
}
