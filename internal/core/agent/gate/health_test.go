package gate

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/agent/state"
	ports "outrider.dev/test/port"
)

func port(t *testing.T, address string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(address)
	check(t, err)
	return p
}

func TestHealthyByTheProbe(t *testing.T) {
	ready := &atomic.Bool{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() || r.URL.Path != "/ready" || r.Header.Get("X-A") != "b" || r.Host != "me" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer web.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer secure.Close()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	grpc := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := byte(2) // NOT_SERVING
		if ready.Load() && r.URL.Path == "/grpc.health.v1.Health/Check" && r.ProtoMajor == 2 {
			status = 1 // SERVING
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(wire.Frame([]byte{1 << 3, status}))
		w.Header().Set("Grpc-Status", "0")
	}))
	grpc.Config.Protocols = protocols
	grpc.Start()
	defer grpc.Close()
	file := t.TempDir() + "/ready"
	tests := map[string]string{
		"http-get": fmt.Sprintf(`{"httpGet":{"path":"/ready","port":%s,"httpHeaders":[{"name":"X-A","value":"b"},{"name":"host","value":"me"}]},"periodSeconds":1,"failureThreshold":1}`, port(t, web.Listener.Addr().String())),
		"https":    fmt.Sprintf(`{"httpGet":{"port":%q,"scheme":"HTTPS"},"periodSeconds":1,"failureThreshold":1}`, port(t, secure.Listener.Addr().String())),
		"exec":     fmt.Sprintf(`{"exec":{"command":["test","-e",%q]},"periodSeconds":1,"failureThreshold":1}`, file),
		"grpc":     fmt.Sprintf(`{"grpc":{"port":%s,"service":"x"},"periodSeconds":1,"failureThreshold":1}`, port(t, grpc.Listener.Addr().String())),
	}
	p := newPod(t)
	for name, probe := range tests {
		p.start(spec{Name: name, Probe: probe, Command: []string{"sleep", "100"}})
	}
	for name := range tests {
		if s := p.until(name, state.Seen.Runs); s.Healthy {
			t.Errorf("%s: healthy before the probe can succeed", name)
		}
	}
	ready.Store(true)
	check(t, os.WriteFile(file, nil, 0o644))
	for name := range tests {
		p.healthy(name)
	}
	ready.Store(false)
	check(t, os.Remove(file))
	for name := range tests {
		p.until(name, func(s state.Seen) bool { return s.Runs() && !s.Healthy })
	}
	t.Run("tcpSocket", func(t *testing.T) {
		at := ports.Hold(t)
		probe, err := ParseProbe(fmt.Sprintf(`{"tcpSocket":{"port":%d}}`, at.Port()))
		check(t, err)
		if err := probe.Try(t.Context()); err == nil {
			t.Error("nothing listens on the port, and it succeeds")
		}
		l, err := net.Listen("tcp", at.String())
		check(t, err)
		defer l.Close()
		if err := probe.Try(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTheTallyOfProbes(t *testing.T) {
	tests := map[string]struct {
		success, failure int
		results          string // of the probes: + is success, - is failure
		want             string
	}{
		"one is enough":               {1, 1, "-+-+", "-+-+"},
		"three failures in a row":     {1, 3, "+--+---", "+++++" + "+-"},
		"two successes in a row":      {2, 1, "+-++-+", "---+--"},
		"it failed, and goes on to":   {1, 2, "----", "----"},
		"both, and it is as it seems": {2, 2, "++-+--++", "-++++--+"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ta := tally{success: tt.success, failure: tt.failure}
			got := ""
			for _, r := range tt.results {
				if ta.add(r == '+') {
					got += "+"
				} else {
					got += "-"
				}
			}
			if got != tt.want {
				t.Errorf("%s becomes %s, want %s", tt.results, got, tt.want)
			}
		})
	}
}

func TestAPostStartHookFailsAsTheKubeletsDoes(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	webPort := port(t, web.Listener.Addr().String())
	tests := map[string]struct {
		hook string
		code int
	}{
		"an exec hook that fails":            {`{"exec":{"command":["false"]}}`, HookFailed},
		"an exec hook that succeeds":         {`{"exec":{"command":["true"]}}`, 0},
		"an httpGet without an answer":       {`{"httpGet":{"port":1,"path":"/x"}}`, HookFailed},
		"an httpGet with whatever an answer": {`{"httpGet":{"port":` + webPort + `,"path":"/x"}}`, 0},
		"a sleep":                            {`{"sleep":{"seconds":0}}`, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			do := []string{}
			if tt.code == 0 {
				do = []string{"lives=300ms"}
			}
			if code := p.ended(p.start(spec{Name: "app", PostStart: tt.hook}, do...)); code != tt.code {
				t.Errorf("status %d, want %d\n%s", code, tt.code, p.all["app"].Log())
			}
		})
	}
}

func TestAStartupProbe(t *testing.T) {
	t.Run("holds the liveness probe until it succeeds", func(t *testing.T) {
		p := newPod(t)
		file := p.dir + "/up"
		p.start(spec{Name: "app", Startup: fmt.Sprintf(`{"exec":{"command":["test","-e",%q]},"periodSeconds":1,"failureThreshold":600}`, file)})
		if s := p.until("app", state.Seen.Runs); !s.Held() {
			t.Error("it runs and is not held")
		}
		check(t, os.WriteFile(file, nil, 0o644))
		p.until("app", func(s state.Seen) bool { return s.Runs() && !s.Held() })
	})
	t.Run("ends the command when it fails for too long", func(t *testing.T) {
		p := newPod(t)
		c := p.start(spec{Name: "app", Startup: `{"exec":{"command":["false"]},"periodSeconds":1,"failureThreshold":1}`})
		if code := p.ended(c); code != NeverStarted {
			t.Errorf("status %d, want %d", code, NeverStarted)
		}
	})
}

func TestAContainerWithoutAStateIsProbed(t *testing.T) {
	answers := func(handle http.HandlerFunc) (*httptest.Server, *atomic.Int32) {
		n := &atomic.Int32{}
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			handle(w, r)
		})), n
	}
	app := func(url string) spec {
		return spec{Name: "app", After: []string{"proxy is healthy"}, At: map[string]string{"proxy": url}, Command: []string{"true"}, SecondLook: time.Hour}
	}
	t.Run("one that holds the request gets one request", func(t *testing.T) {
		web, n := answers(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("wait") == "" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			time.Sleep(150 * time.Millisecond)
		})
		defer web.Close()
		if code, _ := newPod(t).output(app(web.URL), ""); code != 0 || n.Load() != 1 {
			t.Errorf("status %d after %d requests, want 0 after 1", code, n.Load())
		}
	})
	t.Run("one that does not gets another", func(t *testing.T) {
		var n *atomic.Int32
		web, n := answers(func(w http.ResponseWriter, _ *http.Request) {
			if n.Load() < 4 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		defer web.Close()
		if code, _ := newPod(t).output(app(web.URL), ""); code != 0 || n.Load() != 4 {
			t.Errorf("status %d after %d requests, want 0 after 4", code, n.Load())
		}
	})
	t.Run("on a Unix socket", func(t *testing.T) {
		p := newPod(t)
		l, err := net.Listen("unix", p.dir+"/s")
		check(t, err)
		go http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer l.Close()
		if code, _ := p.output(app("http+unix://"+strings.ReplaceAll(p.dir+"/s", "/", "%2F")+"/ready"), ""); code != 0 {
			t.Errorf("status %d", code)
		}
	})
}

// A dependency that was healthy dies while another one is still missing. The gate must not open
// because of the old answer.
func TestHealthyMeansNow(t *testing.T) {
	p := newPod(t)
	l, err := net.Listen("tcp", ports.Hold(t).String())
	check(t, err)
	web := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go web.Serve(l)
	s := spec{Name: "app", After: []string{"proxy is healthy", "cache is started"}, At: map[string]string{"proxy": "http://" + l.Addr().String()}}
	p.start(s)
	p.until("app", func(s state.Seen) bool { return len(s.Waited) == 2 && s.Waited[0].By != "" })
	web.Close()
	time.Sleep(fresh) // until the proxy's answer is too old
	p.start(spec{Name: "cache"})
	p.runs("cache")
	p.until("app", func(s state.Seen) bool { return s.Alive && s.Waited[1].By != "" || s.Runs() })
	if seen, _ := p.watch.Read("app"); seen.Runs() {
		t.Error("it runs although its proxy is gone")
	}
}
