package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Try probes once, with the probe's own timeout, and returns nil on success. It judges
// success as the kubelet does (kubelet v1.34.4 pkg/probe).
func (p *Probe) Try(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(max(p.TimeoutSeconds, 1))*time.Second, errors.New("no answer in time"))
	defer cancel()
	switch {
	case p.HTTPGet != nil:
		status, err := p.HTTPGet.get(ctx)
		if err == nil && !isSuccess(status) {
			err = fmt.Errorf("status %d", status)
		}
		return err
	case p.TCPSocket != nil:
		c, err := dialSelf(ctx, p.TCPSocket.Host, p.TCPSocket.Port)
		if err != nil {
			return err
		}
		return c.Close()
	case p.GRPC != nil:
		return p.GRPC.check(ctx)
	default:
		return p.Exec.run(ctx)
	}
}

// pause returns the time before the next try. Before the first success, pauses begin short and
// grow to the probe's period, so that readiness is noticed early.
func (p *Probe) pause(tries int) time.Duration {
	period := time.Duration(p.PeriodSeconds) * time.Second
	first := shortestPause
	if p.Exec != nil {
		first *= 5 // each try starts a process
	}
	return min(period, first<<min(tries, 10))
}

// A tally turns single results into health, as the kubelet does: health changes after
// as many equal results in a row as the threshold.
type tally struct {
	success, failure int // thresholds
	last             bool
	run              int
	healthy          bool
}

func (t *tally) add(ok bool) (healthy bool) {
	if ok != t.last {
		t.last, t.run = ok, 0
	}
	t.run++
	switch {
	case ok && t.run >= t.success:
		t.healthy = true
	case !ok && t.run >= t.failure:
		t.healthy = false
	}
	return t.healthy
}

// get sends the request and returns the status of the answer.
func (h *HTTPGet) get(ctx context.Context) (int, error) {
	host := h.Host
	if host == "" {
		host = "localhost"
	}
	u, err := url.Parse(h.Path)
	if err != nil {
		u = &url.URL{Path: h.Path} // not a URL: a literal path, as the kubelet takes it
	}
	u.Scheme = strings.ToLower(h.Scheme)
	u.Host = net.JoinHostPort(host, strconv.Itoa(int(h.Port)))
	u.Path = "/" + strings.TrimPrefix(u.Path, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", "kube-probe/outrider")
	req.Header.Set("Accept", "*/*")
	for _, header := range h.HTTPHeaders {
		if strings.EqualFold(header.Name, "Host") {
			req.Host = header.Value
			continue
		}
		req.Header.Add(header.Name, header.Value)
	}
	transport := plainTransport()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == u.Host {
			return dialSelf(ctx, h.Host, h.Port)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	// The kubelet follows redirects that stay on the host.
	client := http.Client{Transport: transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if req.URL.Hostname() != via[0].URL.Hostname() || len(via) >= 10 {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 10<<10))
	return resp.StatusCode, nil
}

// plainTransport returns a transport without keep-alive that accepts any certificate: the
// server is in the pod itself.
func plainTransport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
}

// dialSelf connects to a port at host, or at this pod if host is empty. The kubelet would probe
// the pod's address. dialSelf tries loopback first, because no rule of the pod captures
// loopback connections, and then the pod's addresses.
func dialSelf(ctx context.Context, host string, port Port) (net.Conn, error) {
	hosts := []string{host}
	if host == "" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	var d net.Dialer
	var failed error
	for i := 0; i < len(hosts); i++ {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(hosts[i], strconv.Itoa(int(port))))
		if err == nil {
			return c, nil
		}
		if failed == nil {
			failed = err
		}
		if host == "" && i == 1 {
			hosts = append(hosts, addresses()...)
		}
	}
	return nil, failed
}

// addresses returns this pod's own addresses without loopback.
func addresses() []string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []string
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			out = append(out, ip.IP.String())
		}
	}
	return out
}

// run runs the program and returns nil if it exits with status 0. The program is the leader
// of a process group, which is killed when ctx ends.
func (e *Exec) run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, e.Command[0], e.Command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w", e.Command[0], err)
	}
	return nil
}
