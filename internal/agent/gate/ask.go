package gate

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"outrider.dev/startup"
)

// An asker probes one container that publishes no record.
type asker struct {
	url   *url.URL
	again chan struct{}
	last  time.Time // of an answer; belongs to the gate's goroutine
}

// Our proxy holds a request with ?wait until it is ready. An endpoint without that answers
// at once, and is probed again: pauses double from the shortest to the longest.
const (
	holdFor       = 30 * time.Second
	shortestPause = 20 * time.Millisecond
	longestPause  = 100 * time.Millisecond
	connectWithin = time.Second
)

func (g *gate) startAsking() {
	var ctx context.Context
	ctx, g.stopAsk = context.WithCancel(g.ctx)
	g.askers = map[string]*asker{}
	for _, e := range g.o.After {
		at := g.o.At[e.From]
		if at == "" || e.After == startup.Completed || g.askers[e.From] != nil {
			continue
		}
		u, err := parseAddress(at)
		if err != nil {
			continue // Options.complete has checked it
		}
		a := &asker{url: u, again: make(chan struct{}, 1)}
		g.askers[e.From] = a
		go a.run(ctx, func(said answer) {
			g.post(func() {
				a.last, g.said[e.From] = time.Now(), said
				g.look()
			})
		})
	}
}

// askAgain drops answers that are too old to open the gate, and reports whether there were
// any: what was healthy when another dependency was still missing may be gone.
func (g *gate) askAgain() bool {
	asked := false
	for _, e := range g.o.After {
		a := g.askers[e.From]
		if a == nil || !g.said[e.From].healthy || time.Since(a.last) <= fresh {
			continue
		}
		if seen, _ := g.watch.Read(e.From); seen.Status().Reached(e.After) {
			continue
		}
		g.said[e.From] = answer{}
		asked = true
		select {
		case a.again <- struct{}{}:
		default:
		}
	}
	return asked
}

// run probes until the answer is yes, and then on request. It reports changes.
func (a *asker) run(ctx context.Context, tell func(answer)) {
	client := a.client()
	pause := shortestPause
	var said answer
	for ctx.Err() == nil {
		begun := time.Now()
		now := a.ask(ctx, client)
		if now != said || now.healthy {
			said = now
			tell(now)
		}
		if time.Since(begun) > time.Second {
			pause = shortestPause // it was held
		}
		var over <-chan time.Time
		if !now.healthy {
			over = time.After(pause)
			pause = min(2*pause, longestPause)
		}
		select {
		case <-over:
		case <-a.again:
		case <-ctx.Done():
		}
	}
}

func (a *asker) ask(ctx context.Context, client *http.Client) answer {
	ctx, cancel := context.WithTimeout(ctx, holdFor+5*time.Second)
	defer cancel()
	u := *a.url
	if u.Scheme == unixScheme {
		u.Scheme, u.Opaque = "http", ""
	}
	q := u.Query()
	if !q.Has("wait") {
		q.Set("wait", holdFor.String())
		u.RawQuery = q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return answer{}
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}
	}
	resp.Body.Close()
	return answer{asked: true, healthy: isSuccess(resp.StatusCode)}
}

// isSuccess is the kubelet's rule (kubelet v1.34.4 pkg/probe/http).
func isSuccess(status int) bool { return status >= 200 && status < 400 }

func (a *asker) client() *http.Client {
	dialer := net.Dialer{Timeout: connectWithin}
	transport := plainTransport()
	transport.DialContext = dialer.DialContext
	if a.url.Scheme == unixScheme {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", a.url.Opaque)
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
