package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/internal/core/agent/state"
)

// A hookRig is a pod with a proxy that has no gate, and applications that have.
type hookRig struct {
	*testing.T
	hook     StopHook
	drained  chan struct{} // a value for each request to drain
	returned chan error
	releases chan struct{} // a value for each end of the parking
	mu       sync.Mutex
	said     []string
}

func (r *hookRig) released() bool { r.releases <- struct{}{}; return true }

func newHookRig(t *testing.T) *hookRig {
	r := &hookRig{T: t, drained: make(chan struct{}, 8), returned: make(chan error, 1), releases: make(chan struct{}, 8)}
	r.hook = StopHook{Name: "proxy", States: t.TempDir(), Sandbox: "here", Say: func(line string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.said = append(r.said, line)
	}}
	return r
}

// serves gives the proxy endpoints, of which the health endpoint has that status.
func (r *hookRig) serves(status int) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/drain" && req.Method == http.MethodPost {
			r.drained <- struct{}{}
			return
		}
		w.WriteHeader(status)
	}))
	r.Cleanup(server.Close)
	r.hook.At, r.hook.Drain = r.url(server.URL+"/ready"), r.url(server.URL+"/drain")
}

func (r *hookRig) url(text string) *url.URL {
	u, err := ParseAddress(text)
	if err != nil {
		r.Fatal(err)
	}
	return u
}

// gated returns the record of an application whose gate waits for the proxy.
func (r *hookRig) gated(name string, change func(*state.Record)) *state.Writer {
	own := filepath.Join(r.hook.States, name)
	if err := os.Mkdir(own, 0o755); err != nil {
		r.Fatal(err)
	}
	first := state.Record{Phase: state.Running, After: []string{"proxy"}}
	if change != nil {
		change(&first)
	}
	w, err := state.Open(state.Place{Container: name, Sandbox: "here", States: r.hook.States, Own: own}, first)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { w.Close() })
	return w
}

func (r *hookRig) run() {
	go func() { r.returned <- r.hook.Run(context.Background()) }()
}

// looks returns a function that has the hook see something at its next look, and fails the test if the hook has returned
// without looking.
func (r *hookRig) looks() func(Sight) {
	all := make(chan Sight)
	r.hook.Look = func() (Sight, error) { return <-all, nil }
	return func(seen Sight) {
		r.Helper()
		select {
		case all <- seen:
		case err := <-r.returned:
			r.Fatalf("the hook has returned before it saw %+v: %v, %q", seen, err, r.said)
		}
	}
}

// stays fails the test if the hook has returned, also while the record of an application changes.
func (r *hookRig) stays(w *state.Writer) {
	r.Helper()
	for i := range 200 {
		select {
		case err := <-r.returned:
			r.Fatalf("the hook has returned: %v, %q", err, r.said)
		default:
			r.must(w.Update(func(r *state.Record) { r.Healthy = i%2 == 0 }))
		}
	}
}

func (r *hookRig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// returns waits until the hook returns, and compares what it has said.
func (r *hookRig) returns(said string) error {
	r.Helper()
	err := <-r.returned
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := strings.Join(r.said, "\n"); !strings.Contains(got, said) || said == "" && got != "" {
		r.Errorf("it says %q, want %q", got, said)
	}
	return err
}

func stops(r *state.Record) { r.Stopping = true }

func hasEnded(r *state.Record) { r.Phase, r.Healthy = state.Ended, false }

func TestAProxyIsKeptUntilTheOthersHaveEnded(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	r.serves(http.StatusOK)
	app, web := r.gated("app", nil), r.gated("web", nil)
	r.gated("stranger", func(r *state.Record) { r.After = nil })
	r.gated("waits", func(r *state.Record) { r.Phase = state.Waiting })
	r.run()
	<-r.drained
	r.must(app.Update(stops))
	r.stays(app)
	r.must(web.Update(hasEnded))
	r.stays(app)
	r.must(app.Update(hasEnded))
	r.must(r.returns(""))
}

func TestAKilledContainerKeepsNoProxy(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	app := r.gated("app", stops)
	r.run()
	r.stays(app)
	app.Close()
	r.must(r.returns(""))
}

func TestASickProxyIsNotKept(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	r.serves(http.StatusServiceUnavailable)
	r.gated("app", stops)
	r.run()
	r.must(r.returns("proxy is not kept for other containers: it is not healthy: status 503"))
	if len(r.drained) > 0 {
		t.Error("it was requested to drain")
	}
}

// The kubelet also runs the hook when it restarts the proxy alone.
func TestAProxyThatIsStoppedAlone(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	r.gated("app", nil)
	r.hook.Look = func() (Sight, error) { return Sight{Sockets: 1}, nil }
	r.hook.Release = r.released
	r.run()
	r.must(r.returns("proxy is stopped alone"))
	if len(r.releases) > 0 {
		t.Error("the parking has ended, although the kubelet starts the proxy again")
	}
}

// A preStop hook delays the stop signal of an application, so its absence means nothing. The grace period limits the
// wait.
func TestTheGracePeriodLimitsTheHook(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	r.hook.Grace = settle + 2500*time.Millisecond
	r.gated("app", func(r *state.Record) { r.PreStop = true })
	r.run()
	r.must(r.returns("proxy stops although app still runs"))
}

// A container without a gate is over when it has neither had a socket nor called for some time. That it has none at one
// moment is no sign: a worker has a socket only during a call.
func TestSocketsAndCallsKeepAProxy(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	looks := r.looks()
	r.hook.Quiet, r.hook.Release = 1, r.released
	r.run()
	for _, seen := range []Sight{{}, {Sockets: 2}, {Sockets: 1}, {Calls: 1}, {Calls: 2}, {Calls: 4}} {
		looks(seen)
	}
	if len(r.releases) > 0 {
		t.Error("the parking has ended although a worker still calls")
	}
	looks(Sight{Calls: 4})
	r.must(r.returns(""))
	if len(r.releases) != 1 {
		t.Error("the parking has not ended: a call that comes later waits until its caller is killed")
	}

	r = newHookRig(t)
	r.hook.Look = func() (Sight, error) { return Sight{}, errors.New("no netlink") }
	r.run()
	r.must(r.returns("counting the sockets of other containers: no netlink"))
}

// One look without a socket does not end the wait: quiet must last.
func TestQuietMustLast(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	looks := r.looks()
	r.hook.Quiet = time.Hour
	r.run()
	for range 4 {
		looks(Sight{})
	}
	looks(Sight{Sockets: 1})
}

// The kubelet restarts a proxy alone when its liveness probe fails. No gate need show that.
func TestAProxyThatIsNotLiveIsNotKept(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	r.serves(http.StatusOK)
	r.hook.Look = func() (Sight, error) { return Sight{Sockets: 1}, nil }
	var err error
	r.hook.Live, err = ParseProbe(`{"exec":{"command":["false"]}}`)
	r.must(err)
	r.run()
	r.must(r.returns("proxy is not kept for other containers: it is not healthy: its liveness probe: false"))
}

// A preStop hook delays the stop signal of one application, but not of the other.
func TestOneWithoutAHookShowsThatTheProxyIsStoppedAlone(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	r.gated("app", func(r *state.Record) { r.PreStop = true })
	r.gated("web", nil)
	r.run()
	r.must(r.returns("proxy is stopped alone"))
}

// A proxy may report its health at a socket in a volume.
func TestHealthByASocketInAVolume(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	r.must(err)
	served := &http.Server{Handler: http.NotFoundHandler()}
	go served.Serve(l)
	defer served.Close()
	r.hook.At = r.url("http+unix://" + url.PathEscape(path) + "/ready")
	r.gated("app", stops)
	r.run()
	r.must(r.returns("proxy is not kept for other containers: it is not healthy: status 404"))
}

// A proxy may report its health by accepting connections.
func TestHealthByTCP(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).Port
	for _, host := range []string{"127.0.0.1", "localhost"} {
		r := newHookRig(t)
		r.hook.At = r.url(fmt.Sprintf("tcp://%s:%d", host, at))
		app := r.gated("app", stops)
		r.run()
		r.stays(app)
		r.must(app.Update(hasEnded))
		r.must(r.returns(""))
	}
	r := newHookRig(t)
	r.hook.At = r.url("tcp://localhost:0") // nothing can listen there
	r.gated("app", stops)
	r.run()
	r.must(r.returns("it is not healthy"))
}

func TestTheOwnHookRunsMeanwhile(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	app := r.gated("app", stops)
	var err error
	r.hook.Own, err = ParseHook(`{"exec":{"command":["false"]}}`)
	r.must(err)
	r.run()
	r.stays(app)
	r.must(app.Update(hasEnded))
	if err := r.returns(""); err == nil {
		t.Error("its failure is not reported")
	}
}
