package ready

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Paths and headers that must be the same in Outrider's agent. A test compares them.
const (
	ownDir         = "/outrider/own"
	statesDir      = "/outrider/state"
	proxyContainer = "outrider-proxy"
	socketFile     = "agent.sock"
	readyPath      = "/healthz/ready"
	waiterHeader   = "Outrider-Waiter"
	agentHeader    = "Outrider-Agent" // in every response of Outrider's agent, which can hold requests
)

// meshVariable is the environment variable with the arguments of Proxy, for programs that give none.
const meshVariable = "OUTRIDER_MESH"

// An endpoint is an address at which an agent reports whether it is ready.
type endpoint struct {
	shown  string
	socket string // path of a Unix socket; empty for TCP
	url    url.URL
	full   bool // the agent supports, or may support, level Full
	holds  bool // the agent can hold a request until the proxy is ready
}

func on(port uint16, path string) endpoint {
	return endpoint{
		shown: fmt.Sprintf("localhost:%d%s", port, path), holds: path == readyPath,
		url: url.URL{Scheme: "http", Host: fmt.Sprintf("localhost:%d", port), Path: path},
	}
}

func onSocket(path string) endpoint {
	return endpoint{shown: path, socket: path, full: true, holds: true, url: url.URL{Scheme: "http", Host: "agent", Path: readyPath}}
}

// Ports of agents: of Outrider and Istio, of Linkerd, and of Dapr, which daprVariable may change.
const (
	statusPort, readinessPort = 15020, 15021
	linkerdPort               = 4191
	daprPort                  = "3500"
	daprVariable              = "DAPR_HTTP_PORT"
)

// agents returns the endpoints at which the agent of the named mesh may answer.
//
// In Istio, pilot-agent answers 200 or 503 on port 15020, and Envoy forwards 15021 to it. In Linkerd, the proxy's
// admin server answers 200 or 503 at /ready. Dapr answers 204 or 500; see docs.dapr.io/reference/api/health_api.
func (p place) agents(name string, env func(string) string) ([]endpoint, error) {
	switch name {
	case "outrider":
		return append(p.sockets(), on(statusPort, readyPath), on(readinessPort, readyPath)), nil
	case "istio":
		return []endpoint{on(statusPort, readyPath), on(readinessPort, readyPath)}, nil
	case "linkerd":
		return []endpoint{on(linkerdPort, "/ready")}, nil
	case "dapr":
		port := cmp.Or(env(daprVariable), daprPort)
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%s=%q: want a port", daprVariable, port)
		}
		path := "/v1.0/healthz/outbound"
		if p.level == Full {
			path = "/v1.0/healthz"
		}
		e := on(uint16(n), path)
		e.full = true
		return []endpoint{e}, nil
	}
	return nil, fmt.Errorf("proxy %q is unknown: want outrider, istio, linkerd, dapr, none, http://HOST:PORT/PATH or unix:///PATH", visible(name))
}

func (p place) sockets() []endpoint {
	return []endpoint{onSocket(filepath.Join(p.own, socketFile)), onSocket(filepath.Join(p.states, proxyContainer, socketFile))}
}

// proxies returns the conditions of Proxy(at...). If there is no proxy because "none" was given, the second
// result says where it was given.
//
// The environment variables are used only if the program gives no arguments.
func (p place) proxies(at []string, env func(string) string) (conditions []*condition, none string, err error) {
	from := "ready.Proxy"
	if v := env(meshVariable); len(at) == 0 && v != "" {
		at, from = strings.Split(v, ","), "the variable "+meshVariable
	}
	if len(at) == 0 {
		auto := &proxy{place: p, mayBeNone: true, endpoints: append(p.sockets(), on(statusPort, readyPath), on(readinessPort, readyPath), on(linkerdPort, "/ready")), env: env}
		conditions = append(conditions, auto.condition("proxy"))
		if env(daprVariable) == "" {
			return conditions, "", nil
		}
		at, from = []string{"dapr"}, "the variable "+daprVariable
	}
	for _, name := range at {
		if name = strings.TrimSpace(name); name == "none" {
			if len(at) > 1 {
				return nil, "", fmt.Errorf("%s: none must be alone", from)
			}
			return nil, from + " is none", nil
		}
		px, shown := &proxy{place: p}, name
		if strings.Contains(name, "://") {
			px.endpoints, err = parseEndpoint(name)
		} else {
			px.endpoints, err = p.agents(name, env)
		}
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", from, err)
		}
		if strings.Contains(name, "://") {
			shown = px.endpoints[0].shown // without the query
		}
		conditions = append(conditions, px.condition("proxy "+shown))
	}
	return conditions, "", nil
}

// parseEndpoint parses the URL of an agent, as an argument of Proxy.
func parseEndpoint(text string) ([]endpoint, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("a proxy's address: %w", plain(err))
	}
	shown := visible((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
	switch {
	case u.User != nil:
		return nil, fmt.Errorf("%s: a user and a password are not supported", shown)
	case u.Scheme == "unix" && u.Host == "" && filepath.IsAbs(u.Path):
		return []endpoint{onSocket(u.Path)}, nil
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%s: want http://HOST:PORT/PATH or unix:///PATH", shown)
	}
	if err := hostPort(u, false); err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	return []endpoint{{shown: shown, url: *u, full: true, holds: true}}, nil
}

// A proxy is the condition that a sidecar is ready.
type proxy struct {
	place
	endpoints []endpoint
	mayBeNone bool                // it is not known yet whether there is a proxy
	asked     bool                // Outrider's agent, which can hold requests, has answered
	env       func(string) string // nil if the agents were named, so that none must be detected
}

func (p *proxy) condition(name string) *condition {
	return &condition{
		name: name, busy: make(chan struct{}, 1), check: p.check,
		dirs: []string{p.own, filepath.Join(p.states, proxyContainer)},
	}
}

// A silence is the error for an endpoint at which no agent has answered. heard is true if something listens
// there.
type silence struct {
	error
	heard bool
}

func (s silence) Unwrap() error { return s.error }

// check sends a request to each endpoint until an agent answers. Once it has found that there is a proxy, later
// attempts do not decide again.
func (p *proxy) check(ctx context.Context, a *attempt) error {
	var first error
	heard := false
	for _, e := range p.endpoints {
		err := p.ask(ctx, a, e)
		var s silence
		if !errors.As(err, &s) {
			p.mayBeNone = false
			return err
		}
		heard = heard || s.heard
		if first == nil || s.heard || errors.Is(first, fs.ErrNotExist) { // a missing socket is the least useful error
			first = fmt.Errorf("no answer from %s: %w", e.shown, s.error)
		}
	}
	if p.mayBeNone {
		if why := p.noMesh(heard); why != "" {
			return skipped{why}
		}
		p.mayBeNone = false
	}
	hint := "is the proxy's container running, and in this pod?"
	if p.env != nil {
		hint += " If the pod has none: " + meshVariable + "=none"
	}
	return &hinted{first, hint}
}

const (
	// holdFor is the longest time for which an agent may hold a request. It limits the age of the reasons in the
	// log.
	holdFor = 10 * time.Second
	// soon is the time for which the agent may hold the first request at level Full, in which it probes the
	// applications.
	soon = 500 * time.Millisecond
	// askLimit is the time limit of a request while it is not known whether there is a proxy: the endpoint may
	// not belong to an agent.
	askLimit = 250 * time.Millisecond
)

// wait returns the time for which an agent may hold this request. For the first request it is 0, or the
// constant soon at level Full, because that answer contains the reasons why the proxy is not ready.
func (p *proxy) wait(end time.Time) time.Duration {
	hold := time.Duration(0)
	switch {
	case p.asked:
		hold = holdFor
	case p.level == Full:
		hold = soon
	}
	if !end.IsZero() {
		hold = max(min(hold, time.Until(end)), 0)
	}
	return hold.Round(time.Millisecond)
}

// ask sends an endpoint one request, which the agent may hold, and returns nil if the agent is ready.
func (p *proxy) ask(ctx context.Context, a *attempt, e endpoint) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := func() bool { return true }
	if p.mayBeNone {
		stop = time.AfterFunc(askLimit, cancel).Stop
		defer stop()
	}
	t := transport()
	t.DialContext = e.dial
	u, q := e.url, e.url.Query()
	if hold := p.wait(a.end); e.holds && hold > 0 {
		q.Set("wait", hold.String())
	}
	if e.holds && p.level == Full {
		q.Set("level", string(Full))
	}
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			if code == http.StatusProcessing {
				stop()
				a.hold()
			}
			return nil
		},
	}), http.MethodGet, u.String(), nil)
	if err != nil {
		return finalError{plain(err)}
	}
	req.Header.Set(waiterHeader, p.as)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	res, err := client(t).Do(req)
	if err != nil {
		var op *net.OpError
		return silence{plain(err), !errors.As(err, &op) || op.Op != "dial"}
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	return p.judge(e, res, body)
}

// judge returns nil if a response means that the proxy is ready, and otherwise the reason why it is not.
func (p *proxy) judge(e endpoint, res *http.Response, body []byte) error {
	ours := res.Header.Get(agentHeader) != ""
	p.asked = p.asked || ours
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		if p.level == Full && !ours && !e.full {
			return finalError{&hinted{fmt.Errorf("level full is not supported by the agent at %s: it does not know the applications", e.shown), "use level outbound"}}
		}
		return nil
	case ours || code == http.StatusServiceUnavailable || code == http.StatusInternalServerError:
		return reasons(code, body)
	default: // another program uses the port, or the proxy runs but its agent does not
		err := reasons(code, body)
		if !p.mayBeNone {
			return err
		}
		return silence{err, false}
	}
}

// dial connects to the endpoint. For localhost it tries 127.0.0.1 and ::1, without a look-up.
func (e endpoint) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := new(net.Dialer)
	if e.socket != "" {
		return d.DialContext(ctx, "unix", e.socket)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "localhost" {
		return d.DialContext(ctx, network, address)
	}
	c, err := d.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		if six, err := d.DialContext(ctx, network, net.JoinHostPort("::1", port)); err == nil {
			return six, nil
		}
	}
	return c, err
}

// reasons returns an error with the reasons why an agent is not ready, from Outrider's JSON or another body.
func reasons(code int, body []byte) error {
	var s struct {
		Reasons []struct{ Code, Message, Hint string }
	}
	if json.Unmarshal(body, &s) == nil && len(s.Reasons) > 0 {
		var words []string
		for _, r := range s.Reasons[:min(len(s.Reasons), 9)] {
			words = append(words, visible(r.Code)+": "+visible(r.Message))
		}
		return &hinted{errors.New(strings.Join(words, "; ")), visible(s.Reasons[0].Hint)}
	}
	return errors.New(strings.TrimSpace(fmt.Sprintf("it answers %d %s", code, visible(string(body)))))
}

// noMesh is called if no agent answers. It returns why there is no proxy to wait for, or "" if there may be one.
// heard is true if something listens at an agent's port.
func (p *proxy) noMesh(heard bool) string {
	switch {
	case p.env("KUBERNETES_SERVICE_HOST") == "" && !exists("/var/run/secrets/kubernetes.io/serviceaccount"):
		return "this is no pod of Kubernetes, and no agent answers"
	case exists(p.own), exists(filepath.Join(p.states, proxyContainer)), heard:
		return ""
	case hostNetwork():
		return "this pod has the node's network, and no agent answers"
	case !captured():
		return "no agent answers, and no connection of this pod is captured"
	case listens(tunnelPort):
		return "the mesh's proxy is on the node, and serves this pod"
	}
	return ""
}

// tunnelPort is the port of HBONE. In Istio's ambient mode, the node's ztunnel listens on it in the pod's network
// namespace before the containers start, and the pod contains no agent.
const tunnelPort = 15008

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// listens reports whether a socket in this network namespace listens on a TCP port.
func listens(port uint16) bool {
	return slices.ContainsFunc([]string{"/proc/self/net/tcp", "/proc/self/net/tcp6"}, func(file string) bool {
		raw, err := os.ReadFile(file)
		return err == nil && listensIn(string(raw), port)
	})
}

// listensIn does the work of [listens], given the content of /proc/net/tcp. The fields of a line are number,
// local address, remote address, state (proc_net_tcp.txt of the kernel).
func listensIn(table string, port uint16) bool {
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], suffix) && f[3] == "0A" {
			return true
		}
	}
	return false
}
