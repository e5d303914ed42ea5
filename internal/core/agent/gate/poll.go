package gate

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"outrider.dev/startup"
)

// A polling probes the containers that publish no record, until the command begins.
type polling struct {
	stop    context.CancelFunc
	pollers map[string]*poller // by container
}

// A poller probes one container.
type poller struct {
	url   *url.URL
	again chan struct{}

	// The last answer and its time; used by the gate's goroutine only.
	answer answer
	at     time.Time
}

// answer returns the last answer of a container; the zero answer if it is not probed.
func (p polling) answer(from string) answer {
	if one := p.pollers[from]; one != nil {
		return one.answer
	}
	return answer{}
}

// Outrider's proxy delays its response to a request with ?wait until it is ready. Other endpoints answer at
// once and are probed again, with pauses that double from the shortest to the longest.
const (
	holdFor       = 30 * time.Second
	shortestPause = 20 * time.Millisecond
	longestPause  = 100 * time.Millisecond
	connectWithin = time.Second
)

func (g *gate) startPolling() polling {
	ctx, stop := context.WithCancel(g.ctx)
	all := polling{stop, map[string]*poller{}}
	for _, e := range g.o.After {
		u := g.o.At[e.From]
		if u == nil || e.After == startup.Completed || all.pollers[e.From] != nil {
			continue
		}
		p := &poller{url: u, again: make(chan struct{}, 1)}
		all.pollers[e.From] = p
		go p.run(ctx, func(got answer) {
			g.post(func() {
				p.at, p.answer = time.Now(), got
				g.look()
			})
		})
	}
	return all
}

// pollAgain drops answers that are too old to open the gate, has their containers probed
// again, and reports whether it dropped any. A container that was healthy while another
// dependency was still missing may have ended since.
func (g *gate) pollAgain() bool {
	dropped := false
	for _, e := range g.o.After {
		p := g.polls.pollers[e.From]
		if p == nil || !p.answer.healthy || time.Since(p.at) <= fresh {
			continue
		}
		if seen, _ := g.watch.Read(e.From); seen.Status().Reached(e.After) {
			continue
		}
		p.answer = answer{}
		dropped = true
		select {
		case p.again <- struct{}{}:
		default:
		}
	}
	return dropped
}

// run probes until the container is healthy, and then once for each value in p.again. It reports each healthy
// answer, and each change.
func (p *poller) run(ctx context.Context, report func(answer)) {
	client := p.client()
	pause := shortestPause
	var last answer
	for ctx.Err() == nil {
		begun := time.Now()
		now := p.get(ctx, client)
		if now != last || now.healthy {
			last = now
			report(now)
		}
		if time.Since(begun) > time.Second {
			pause = shortestPause // the endpoint held the request
		}
		var over <-chan time.Time
		if !now.healthy {
			over = time.After(pause)
			pause = min(2*pause, longestPause)
		}
		select {
		case <-over:
		case <-p.again:
		case <-ctx.Done():
		}
	}
}

func (p *poller) get(ctx context.Context, client *http.Client) answer {
	ctx, cancel := context.WithTimeout(ctx, holdFor+5*time.Second)
	defer cancel()
	if p.url.Scheme == tcpScheme {
		if err := connects(ctx, p.url); err != nil {
			return answer{problem: cause(err)}
		}
		return answer{responded: true, healthy: true}
	}
	u := requestURL(p.url)
	q := u.Query()
	if !q.Has("wait") {
		q.Set("wait", holdFor.String())
		u.RawQuery = q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return answer{problem: err.Error()}
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{problem: cause(err)}
	}
	defer resp.Body.Close()
	if isSuccess(resp.StatusCode) {
		return answer{responded: true, healthy: true}
	}
	late := time.AfterFunc(longestPause, cancel) // a slow body must not delay the next request
	defer late.Stop()
	return answer{responded: true, problem: problemOf(resp)}
}

// connects connects to the host and the port of u, once.
func connects(ctx context.Context, u *url.URL) error {
	c, err := dialTo(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	return c.Close()
}

// dialTo connects to an address. The host localhost stands for the pod: its loopback addresses, or else its own.
func dialTo(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || host != "localhost" {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return dialSelf(ctx, "", Port(n))
}

// isSuccess applies the kubelet's rule (kubelet v1.34.4 pkg/probe/http).
func isSuccess(status int) bool { return status >= 200 && status < 400 }

func (p *poller) client() *http.Client {
	return &http.Client{Transport: transportTo(p.url), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// transportTo returns a transport for requests to the endpoint u, which [ParseAddress] returned.
func transportTo(u *url.URL) *http.Transport {
	transport := plainTransport()
	transport.DialContext = dialTo
	if u.Scheme == unixScheme {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialTo(ctx, "unix", u.Opaque) }
	}
	return transport
}

// requestURL returns the URL of a request by [transportTo] to the endpoint u.
func requestURL(u *url.URL) url.URL {
	to := *u
	if to.Scheme == unixScheme {
		to.Scheme, to.Opaque = "http", ""
	}
	return to
}
