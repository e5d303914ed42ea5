package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
)

// Probes holds the app's own probes and hooks, which the injector has redirected to the agent.
// The zero value holds none.
type Probes struct {
	// Host is the address on which the app listens: the pod's address (INSTANCE_IP); default
	// localhost.
	Host string

	// Made is called with the result of each readiness probe (without one: startup probe) of a container that
	// the agent made for the kubelet; default: no call.
	Made func(container string, err error)

	// Started waits until the command behind a container's gate has started up. It returns an error if ctx ends
	// first. Default: the command counts as started up.
	Started func(ctx context.Context, container string) error

	// Held reports whether the liveness probe of a container must succeed because its gate
	// holds the command back or the command is starting up. Default: no.
	Held func(container string) bool

	// Key identifies the kubelet's requests. It is the last part of their paths:
	// /app-health/CONTAINER/readyz/KEY. Default: none; then their address identifies them.
	Key string

	byPath map[string]probe
}

// A probe is a Kubernetes probe, as in a pod's JSON, with its port as a number.
type probe struct {
	HTTPGet        *httpGet    `json:"httpGet"`
	TCPSocket      *portOnly   `json:"tcpSocket"`
	GRPC           *grpcHealth `json:"grpc"`
	TimeoutSeconds int         `json:"timeoutSeconds"`
}

type httpGet struct {
	Path        string
	Port        port
	Scheme      string
	HTTPHeaders []struct{ Name, Value string } `json:"httpHeaders"`
}

type portOnly struct{ Port port }

type grpcHealth struct {
	Port    port
	Service *string
}

// A port is a number, or a number as text: the injector has resolved names.
type port uint16

func (p *port) UnmarshalJSON(raw []byte) error {
	n, err := strconv.ParseUint(strings.Trim(string(raw), `"`), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("port %.40s: want a number from 1 to 65535", raw)
	}
	*p = port(n)
	return nil
}

// isProbePath reports whether a path is /KIND/CONTAINER/PROBE, as Istio's injector writes it.
func isProbePath(path string) bool {
	parts := strings.Split(path, "/")
	return len(parts) == 4 && parts[0] == "" && parts[2] != "" && slices.Contains(probesOf[parts[1]], parts[3])
}

var probesOf = map[string][]string{
	"app-health":    {"livez", "readyz", "startupz", contract.StartedProbe},
	"app-lifecycle": {"prestopz", "poststartz"},
}

// ParseProbes parses ISTIO_KUBE_APP_PROBERS. own are the agent's ports: a probe must not use one
// of them, because the agent would call itself in a loop.
func ParseProbes(raw, host string, own ...uint16) (Probes, error) {
	out := Probes{Host: host}
	if strings.TrimSpace(raw) == "" {
		return out, nil
	}
	wrong := func(path string, format string, args ...any) error {
		return fmt.Errorf("ISTIO_KUBE_APP_PROBERS: %s: "+format, append([]any{path}, args...)...)
	}
	if err := json.Unmarshal([]byte(raw), &out.byPath); err != nil {
		return Probes{}, wrong("want a JSON object of probes by path", "%w", err)
	}
	for _, path := range slices.Sorted(maps.Keys(out.byPath)) {
		p := out.byPath[path]
		ports := p.ports()
		switch {
		case !isProbePath(path):
			return Probes{}, wrong(path, "want /app-health/CONTAINER/{livez,readyz,startupz,startedz} or /app-lifecycle/CONTAINER/{prestopz,poststartz}")
		case isStarted(path) && len(ports) != 0:
			return Probes{}, wrong(path, "want no httpGet, tcpSocket or grpc: the gate's state is the answer")
		case isStarted(path):
		case len(ports) != 1:
			return Probes{}, wrong(path, "want one of httpGet, tcpSocket, grpc; got %d", len(ports))
		case ports[0] == 0:
			return Probes{}, wrong(path, "port is missing")
		case slices.Contains(own, ports[0]):
			return Probes{}, wrong(path, "port %d is the agent's own", ports[0])
		case p.HTTPGet != nil && !slices.Contains([]string{"", "HTTP", "HTTPS"}, strings.ToUpper(p.HTTPGet.Scheme)):
			return Probes{}, wrong(path, "httpGet.scheme %q: one of HTTP, HTTPS", p.HTTPGet.Scheme)
		}
		if p.TimeoutSeconds < 0 {
			return Probes{}, wrong(path, "timeoutSeconds %d is negative", p.TimeoutSeconds)
		}
	}
	return out, nil
}

// ports returns the port of each kind of probe that is set.
func (p probe) ports() (out []uint16) {
	if p.HTTPGet != nil {
		out = append(out, uint16(p.HTTPGet.Port))
	}
	if p.TCPSocket != nil {
		out = append(out, uint16(p.TCPSocket.Port))
	}
	if p.GRPC != nil {
		out = append(out, uint16(p.GRPC.Port))
	}
	return out
}

// isStarted reports whether a path belongs to a startup probe that waits for the command behind a gate.
func isStarted(path string) bool { return strings.HasSuffix(path, "/"+contract.StartedProbe) }

// Gated returns the containers that have a gate, according to their startup probes, sorted.
func (p Probes) Gated() []string {
	var out []string
	for _, path := range p.Paths() {
		if isStarted(path) {
			out = append(out, container(path))
		}
	}
	return out
}

// Paths returns the paths of all probes and hooks, sorted.
func (p Probes) Paths() []string { return slices.Sorted(maps.Keys(p.byPath)) }

// split separates the path of a probe from the key at its end.
func (p Probes) split(path string) (fixed, key string) {
	if strings.Count(path, "/") < 4 {
		return path, ""
	}
	i := strings.LastIndexByte(path, '/')
	return path[:i], path[i+1:]
}

// serve makes the app's probe in the kubelet's place, and returns the app's answer.
func (p Probes) serve(w http.ResponseWriter, r *http.Request) {
	path, _ := p.split(r.URL.Path)
	probe, ok := p.byPath[path]
	if !ok {
		http.Error(w, fmt.Sprintf("no such probe: %.100q; known: %s", path, cmp.Or(strings.Join(p.Paths(), ", "), "none")), http.StatusNotFound)
		return
	}
	ctx, cancel := probe.limited(r.Context())
	defer cancel()
	end, _ := ctx.Deadline()
	control := http.NewResponseController(w)
	control.SetReadDeadline(end.Add(answerLimit)) // the probe may take longer than an ordinary request
	control.SetWriteDeadline(end.Add(answerLimit))
	code, body, err := p.try(ctx, path, probe, r.UserAgent())
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	p.made(path, result(code, err))
	if err != nil {
		http.Error(w, "probe failed: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // a browser must not run the app's answer
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write(body)
}

func (p Probes) try(ctx context.Context, path string, probe probe, userAgent string) (code int, body []byte, err error) {
	at := func(n port) string { return net.JoinHostPort(cmp.Or(p.Host, "localhost"), strconv.Itoa(int(n))) }
	switch name := container(path); {
	case isStarted(path):
		if p.Started != nil {
			err = p.Started(ctx, name)
		}
		return http.StatusOK, nil, err
	case p.Held != nil && path == contract.ProbePath+name+"/livez" && p.Held(name):
		return http.StatusOK, []byte("held by its gate\n"), nil
	case probe.HTTPGet != nil:
		return tryHTTP(ctx, *probe.HTTPGet, at(probe.HTTPGet.Port), userAgent)
	case probe.TCPSocket != nil:
		conn, err := dialApp(ctx, "tcp", at(probe.TCPSocket.Port))
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, nil, conn.Close()
	default:
		service := ""
		if probe.GRPC.Service != nil {
			service = *probe.GRPC.Service
		}
		return http.StatusOK, nil, tryGRPC(ctx, at(probe.GRPC.Port), service)
	}
}

// dialApp connects to the app without being captured: from the source address that Istio reserves
// for the proxy's connections to the app. If this address is not assigned, because nothing is
// captured, it uses any source address.
func dialApp(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{}
	if host, _, err := net.SplitHostPort(address); err == nil {
		if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && !ip.Is4In6() {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP("::6")}
		} else if err == nil {
			d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 6)}
		}
	}
	conn, err := d.DialContext(ctx, network, address)
	if d.LocalAddr != nil && (errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENETUNREACH)) {
		d.LocalAddr = nil
		conn, err = d.DialContext(ctx, network, address)
	}
	return conn, err
}

// The kubelet's limits (pkg/probe/http).
const (
	redirectLimit = 10
	probeBody     = 10 << 10
)

// kubeProbe is the prefix of the User-Agent of the kubelet's probes; the version follows.
const kubeProbe = "kube-probe/"

func isKubeVersion(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-"
	return s != "" && len(s) <= 32 && strings.Trim(s, letters) == ""
}

// tryHTTP sends the headers that the kubelet would send, and those that the probe declares. Of the
// caller's headers it passes on only the kubelet's version. With other headers the caller could
// claim an identity towards the app (X-Forwarded-Client-Cert, Authorization).
func tryHTTP(ctx context.Context, p httpGet, address, userAgent string) (code int, body []byte, err error) {
	path := "/" + strings.TrimPrefix(p.Path, "/")
	url := strings.ToLower(cmp.Or(p.Scheme, "http")) + "://" + address + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("httpGet: %w", err)
	}
	if version, ok := strings.CutPrefix(userAgent, kubeProbe); !ok || !isKubeVersion(version) {
		userAgent = asAgent
	}
	req.Header = http.Header{"User-Agent": {userAgent}, "Accept": {"*/*"}}
	// Like the kubelet, send all of the probe's headers, even several with the same name. They
	// replace the default ones.
	for _, h := range p.HTTPHeaders {
		req.Header.Del(h.Name)
	}
	for _, h := range p.HTTPHeaders {
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	client := http.Client{Transport: appTransport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		// The kubelet does not follow a redirect to another host, and takes it for a success.
		if next.URL.Hostname() != via[0].URL.Hostname() {
			return http.ErrUseLastResponse
		}
		if len(via) >= redirectLimit {
			return fmt.Errorf("more than %d redirects", redirectLimit)
		}
		next.Host = via[0].Host
		return nil
	}}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, probeBody))
	if code = res.StatusCode; code >= 300 && code < 400 {
		code = http.StatusOK
	}
	if err != nil && code >= 400 {
		err = nil // the status is a failure already
	}
	return code, body, err
}
