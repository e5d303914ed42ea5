package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/port"
)

// A gap is a proxy to the API server. It can answer list and watch requests itself, like an API server that is
// starting, is overloaded, or no longer has the resource version at which a watch begins.
type gap struct {
	forward *httputil.ReverseProxy
	address string
	server  *http.Server

	mu          sync.Mutex
	list, watch http.HandlerFunc // answer requests instead of the API server; nil: they are forwarded
	epoch       context.Context
	end         context.CancelFunc
	refused     int
}

func newGap(t *testing.T, w world) *gap {
	t.Helper()
	config, err := clientcmd.NewDefaultClientConfig(*w.config, nil).ClientConfig()
	must(t, err)
	transport, err := rest.TransportFor(config)
	must(t, err)
	to, err := url.Parse(config.Host)
	must(t, err)
	g := &gap{forward: httputil.NewSingleHostReverseProxy(to), address: port.Hold(t).String()}
	g.forward.Transport, g.forward.FlushInterval = transport, -1
	g.forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) } // closes the connection of a watch that was ended
	g.epoch, g.end = context.WithCancel(context.Background())
	g.mend(t)
	t.Cleanup(g.cut)
	return g
}

// through changes a client's kubeconfig so that its requests go through the gap, which adds the administrator's
// credentials.
func (g *gap) through(c *api.Cluster, _ *api.AuthInfo) {
	c.Server, c.CertificateAuthorityData, c.CertificateAuthority = "http://"+g.address, nil, ""
}

func (g *gap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	answer, epoch := g.list, g.epoch
	if r.URL.Query().Get("watch") != "" {
		answer = g.watch
	}
	if answer != nil {
		g.refused++
	}
	g.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(epoch, cancel)()
	g.forward.ServeHTTP(w, r.WithContext(ctx))
}

// answers ends all watches, and sets the handlers that answer new requests.
func (g *gap) answers(list, watch http.HandlerFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end()
	g.list, g.watch, g.refused = list, watch, 0
	g.epoch, g.end = context.WithCancel(context.Background())
}

// cut refuses new connections and closes the existing ones.
func (g *gap) cut() { g.server.Close() }

// mend makes the gap forward all requests again, after a call of [gap.answers] or [gap.cut].
func (g *gap) mend(t *testing.T) {
	t.Helper()
	g.answers(nil, nil)
	l, err := net.Listen("tcp", g.address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return // cut was not called
	}
	must(t, err)
	g.server = &http.Server{Handler: g}
	go g.server.Serve(l)
}

func (g *gap) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// status answers with an error of the Kubernetes API.
func status(code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, statusText(code, reason))
	}
}

func statusText(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"by the test","reason":%q,"code":%d}`, reason, code)
}

// ended answers a watch with the event by which an API server reports that the watch's resource
// version is gone (etcd was compacted).
func ended(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", statusText(http.StatusGone, "Expired"))
}

// Each mesh that the control plane publishes is complete, even if the API server restarts, is overloaded, or has lost
// the history of a watch. The previous mesh stays published until the objects have been listed again.
func theMeshIsWholeOverAGap(t *testing.T) {
	w := enterWorld(t)
	w.namespace(t, "gaps", nil)
	unavailable := status(http.StatusServiceUnavailable, "ServiceUnavailable")
	busy := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "1")
		status(http.StatusTooManyRequests, "TooManyRequests")(w, r)
	}
	for i, tt := range []struct {
		name        string
		list, watch http.HandlerFunc
		trouble     bool
	}{
		{"it restarts", unavailable, unavailable, true},
		{"it has too much to do", busy, busy, true},
		{"watches are answered 410 and lists fail", unavailable, status(http.StatusGone, "Expired"), true},
		{"watches end with 410 and lists fail", unavailable, ended, true},
		{"watches are answered 410", nil, status(http.StatusGone, "Expired"), false},
		{"watches end with 410", nil, ended, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // because the test mostly waits for the client's next retry
			was, later := fmt.Sprintf("was-%d", i), fmt.Sprintf("later-%d", i)
			kubectl(t, "", "create", "service", "clusterip", was, "--tcp=80", "-n", "gaps")
			var j journal
			g := newGap(t, w)
			c := w.connect(t, &j, func(c *api.Cluster, a *api.AuthInfo) { outriderd(c, a); g.through(c, a) })
			s := c.Source(t.Context(), mesh.Config{})
			until(t, "synced", func() bool { return closed(s.Synced()) }, func() string { return strings.Join(c.Trouble(), "\n") + j.String() })
			whole := func(m *mesh.Mesh) bool {
				return m.ByName("default", "kubernetes") != nil && m.ByName("kube-system", "kube-dns") != nil &&
					(m.ByName("gaps", was) != nil || m.ByName("gaps", later) != nil)
			}
			running(t, func(ctx context.Context) error { // checks every mesh that is published from now on
				for {
					m, newer := s.Current()
					if !whole(m) {
						t.Error("a mesh without services that exist was published")
						return nil
					}
					select {
					case <-newer:
					case <-ctx.Done():
						return nil
					}
				}
			})
			g.answers(tt.list, tt.watch)
			until(t, "requests are answered so", func() bool { return g.count() > 10 }, j.String)
			if tt.trouble {
				until(t, "there is trouble, which readiness shows", func() bool { return len(c.Trouble()) > 0 }, j.String)
			}
			kubectl(t, "", "create", "service", "clusterip", later, "--tcp=80", "-n", "gaps")
			kubectl(t, "", "delete", "service", was, "-n", "gaps")
			if m, _ := s.Current(); tt.trouble && (m.ByName("gaps", was) == nil || m.ByName("gaps", later) != nil) {
				t.Error("with no list the mesh has changed")
			}
			g.answers(nil, nil)
			until(t, "it has caught up", func() bool {
				m, _ := s.Current()
				return m.ByName("gaps", was) == nil && m.ByName("gaps", later) != nil
			}, j.String)
			until(t, "the trouble has ended", func() bool { return len(c.Trouble()) == 0 }, func() string { return strings.Join(c.Trouble(), "\n") + j.String() })
		})
	}
}

// A replica that cannot reach the API server, or gets only errors from it, reports this, but stays ready and serves.
// When the API server answers again, the report disappears.
func TestReadinessOverAGap(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	w.withoutAuthority(t)
	g := newGap(t, w)
	r := w.replica(t, contract.AuthoritySecret, g.through).serves(t)
	roots := w.secret(t, contract.AuthoritySecret).Data["root-cert.pem"]
	for trouble, begin := range map[string]func(){ // any order: each fault ends before the next begins
		"reading the Secret outrider-system/outrider-ca: ": g.cut,
		"reading services: ": func() {
			g.answers(status(http.StatusServiceUnavailable, "ServiceUnavailable"), status(http.StatusGone, "Expired"))
		},
	} {
		begin()
		until(t, "readiness says what is not current", func() bool {
			code, text := r.get(t, "/ready")
			return code == http.StatusOK && strings.Contains(text, "but not current: ") && strings.Contains(text, trouble)
		}, r.log.String, r)
		if !r.shows(roots) {
			t.Error("it does not serve")
		}
		g.mend(t)
		until(t, "readiness has no trouble any more", func() bool { _, text := r.get(t, "/ready"); return text == "ready\n" }, r.log.String, r)
	}
}
