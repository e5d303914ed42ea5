package gate

import (
	"context"
	"errors"
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
	mu       sync.Mutex
	said     []string
}

func newHookRig(t *testing.T) *hookRig {
	r := &hookRig{T: t, drained: make(chan struct{}, 8), returned: make(chan error, 1)}
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
	r.hook.Sockets = func() (int, error) { return 1, nil }
	r.run()
	r.must(r.returns("proxy is stopped alone"))
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

func TestSocketsKeepAProxy(t *testing.T) {
	t.Parallel()
	r := newHookRig(t)
	counted, open := make(chan int), 0
	r.hook.Sockets = func() (int, error) { open = <-counted; return open, nil }
	r.run()
	for _, n := range []int{2, 1, 1} {
		counted <- n
	}
	counted <- 0
	r.must(r.returns(""))

	r = newHookRig(t)
	r.hook.Sockets = func() (int, error) { return 0, errors.New("no netlink") }
	r.run()
	r.must(r.returns("counting the sockets of other users: no netlink"))
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
