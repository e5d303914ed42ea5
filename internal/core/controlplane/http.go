package controlplane

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/xds"
)

// Limits of the HTTP port. The number of connections is limited as on the gRPC ports.
const (
	webHeaders     = 16 << 10
	webHeaderTime  = 5 * time.Second
	webRequestTime = 10 * time.Second
	webAnswerTime  = 2 * time.Minute // the answer with a profile takes as long as its request specifies, by default 30 s
	webIdle        = time.Minute     // Prometheus scrapes every 15 or 30 s
	scrapesAtOnce  = 2               // one for each address; other requests wait, and addresses take turns
)

// A web is the server of the HTTP port, for metrics and readiness.
type web struct {
	listener *conns.Listener
	server   *http.Server
	ended    chan error
}

// startWeb starts the server. It is called before the other ports are served, because readiness must be
// available early.
func (p *plane) startWeb(l net.Listener) *web {
	w := &web{listener: p.listenOn(l, nil), ended: make(chan error, 2), server: &http.Server{
		Handler: p.handler(), MaxHeaderBytes: webHeaders,
		ReadHeaderTimeout: webHeaderTime, ReadTimeout: webRequestTime, WriteTimeout: webAnswerTime, IdleTimeout: webIdle,
	}}
	go func() { w.ended <- w.listener.Serve() }()
	go func() { w.ended <- w.server.Serve(w.listener.Identified()) }()
	return w
}

func (w *web) close() {
	w.listener.Close()
	w.server.Close()
}

// handler serves metrics and readiness. Paths that reveal more are only for clients on this machine; these
// include everyone who may forward a port to it. Before the control plane is open, only liveness and
// readiness are served.
func (p *plane) handler() http.Handler {
	opened := sync.OnceValue(p.openedHandler)
	early := http.NewServeMux()
	p.health(early)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.isOpen() {
			opened().ServeHTTP(w, r)
			return
		}
		early.ServeHTTP(w, r)
	})
}

// health adds the paths for liveness, which only shows that this process answers, and for readiness. A
// control plane that was ready stays ready while the API server is unreachable: it serves what it has read,
// and all other replicas are in the same state.
func (p *plane) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "live") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if missing := p.missing(); missing != nil {
			http.Error(w, strings.Join(missing, "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
		if p.cluster != nil {
			for _, trouble := range p.cluster.Trouble() {
				fmt.Fprintln(w, "but not current:", trouble)
			}
		}
	})
}

// openedHandler returns the handler for requests once all parts of the control plane are open.
func (p *plane) openedHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &metrics{p})
	mux := http.NewServeMux()
	p.health(mux)
	mux.HandleFunc("GET /metrics", byTurns(conns.NewGate(scrapesAtOnce, 1), promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, contract.Version{Version: p.o.Version, Envoy: contract.EnvoyVersion})
	})
	local := func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, loopback(h)) }
	local("GET "+contract.StatusPath, p.status)
	local("GET /debug/proxies", p.proxies)
	local("GET /debug/proxy", p.proxy)
	local("GET /debug/problems", p.problems)
	local("GET /debug/pprof/", pprof.Index)
	local("GET /debug/pprof/profile", pprof.Profile)
	return mux
}

// byTurns serves a request when it is the turn of its client's address. The turn ends before the answer is
// written, so that a client that does not read delays no other.
func byTurns(g *conns.Gate, next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		leave, err := g.Enter(r.Context(), conns.AddressOf(r), 1)
		if err != nil {
			return // the client has disconnected
		}
		defer leave()
		out := page{header: w.Header()}
		next.ServeHTTP(&out, r)
		leave()
		w.WriteHeader(cmp.Or(out.code, http.StatusOK))
		w.Write(out.body.Bytes()) // an error means that the client has disconnected
	}
}

// A page buffers an answer until the turn of the request has ended.
type page struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (p *page) Header() http.Header         { return p.header }
func (p *page) WriteHeader(code int)        { p.code = code }
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }

// loopback refuses clients on other machines. It also refuses requests whose host is a DNS name: by DNS
// rebinding, a page of another site could read the answer in a local browser.
func loopback(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		switch {
		case err != nil || !net.ParseIP(host).IsLoopback():
			http.Error(w, "only from the machine itself; in a cluster use outrider dashboard, outrider proxy-status or kubectl port-forward", http.StatusForbidden)
		case !addressed(r.Host):
			http.Error(w, "the request's host is a name: use localhost or an IP address", http.StatusForbidden)
		default:
			next(w, r)
		}
	})
}

// addressed reports whether a request's host is an IP address or localhost, which no DNS server resolves.
func addressed(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.Encode(v) // an error means that the client has disconnected
}

// connected returns the proxies that are connected to this replica.
func (p *plane) connected() []xds.ProxyStatus {
	all := []xds.ProxyStatus{}
	for _, s := range p.discovery() {
		all = append(all, s.Proxies()...)
	}
	slices.SortFunc(all, func(a, b xds.ProxyStatus) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// proxies answers with the state of each connected proxy: its subscriptions, and what it accepted and
// rejected.
func (p *plane) proxies(w http.ResponseWriter, _ *http.Request) { answer(w, p.connected()) }

// proxy answers with the resources that were sent to one proxy.
func (p *plane) proxy(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	for _, s := range p.discovery() {
		if resources, ok := s.Resources(id); ok {
			answer(w, resources)
			return
		}
	}
	http.Error(w, fmt.Sprintf("no proxy %q is connected here; /debug/proxies lists them", id), http.StatusNotFound)
}

func (p *plane) problems(w http.ResponseWriter, _ *http.Request) {
	problems, _ := p.mesh.Problems()
	answer(w, append([]string{}, problems...)) // no problems encode as [], not null
}
