package ready

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// parseTarget parses one argument of On.
func parseTarget(text string) (*condition, error) {
	if !strings.Contains(text, "://") {
		return parseContainer(text)
	}
	u, err := url.Parse(text)
	if err != nil {
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err // without the address, which may contain a password
		}
		return nil, fmt.Errorf("a dependency's address: %w", err)
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path} // without the query, which may contain a token
	c := &condition{name: visible(shown.String()), busy: make(chan struct{}, 1)}
	if u.User != nil {
		return nil, fmt.Errorf("%s: a user and a password are not supported: use ready.Check", c.name)
	}
	switch u.Scheme {
	case "tcp", "grpc":
		if err := hostPort(u, true); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if u.Scheme == "tcp" && u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("%s: want %s", c.name, forms[u.Scheme])
		}
		c.remote = !isLoopback(u.Hostname())
		if u.Scheme == "tcp" {
			c.check = tcpCheck(u.Host, c.remote)
		} else {
			c.check = grpcCheck(u.Host, strings.TrimPrefix(u.Path, "/"))
		}
	case "http", "https":
		if err := hostPort(u, false); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		c.remote = !isLoopback(u.Hostname())
		c.check = httpCheck(u)
	case "unix", "file":
		if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("%s: want %s", c.name, forms[u.Scheme])
		}
		c.dirs = []string{filepath.Dir(u.Path)}
		if u.Scheme == "unix" {
			c.check = dialCheck("unix", u.Path)
		} else {
			c.check = fileCheck(u.Path)
		}
	default:
		return nil, fmt.Errorf("%s: scheme %q is unknown: want tcp, http, https, grpc, unix or file", c.name, u.Scheme)
	}
	return c, nil
}

// forms maps a scheme to the form of its addresses, for errors.
var forms = map[string]string{
	"tcp": "tcp://HOST:PORT", "grpc": "grpc://HOST:PORT or grpc://HOST:PORT/SERVICE",
	"unix": "unix:///PATH", "file": "file:///PATH",
}

// hostPort checks host and port of an address. If needed is false, the port may be omitted.
func hostPort(u *url.URL, needed bool) error {
	if u.Hostname() == "" {
		return errors.New("the host is missing")
	}
	port := u.Port()
	if port == "" && !needed && !strings.HasSuffix(u.Host, ":") {
		return nil
	}
	if port == "" {
		return errors.New("the port is missing")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %s: want a number from 1 to 65535", port)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func dialCheck(network, address string) func(context.Context, *attempt) error {
	return func(ctx context.Context, _ *attempt) error {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return plain(err)
		}
		return c.Close()
	}
}

// settles is the time for which a connection must stay open if a proxy may have accepted it.
const settles = 100 * time.Millisecond

var errClosed = errors.New("the connection is accepted and closed at once, as by a proxy whose own connection is refused")

// tcpCheck returns a check that opens a connection. If a proxy may have accepted the connection instead of the
// dependency, it must also stay open for 100 ms ([settles]).
func tcpCheck(address string, remote bool) func(context.Context, *attempt) error {
	return func(ctx context.Context, _ *attempt) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return plain(err)
		}
		defer c.Close()
		if !remote || !captured() {
			return nil
		}
		c.SetReadDeadline(time.Now().Add(settles))
		stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Now()) })
		defer stop()
		switch _, err := c.Read(make([]byte, 1)); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		}
		return errClosed
	}
}

func fileCheck(path string) func(context.Context, *attempt) error {
	return func(context.Context, *attempt) error {
		_, err := os.Stat(path)
		var e *fs.PathError
		if errors.As(err, &e) {
			return e.Err
		}
		return err
	}
}

// transport returns a transport that opens a new connection for each request, because an answer on an old one
// does not prove that a new one can be opened. It does not use an HTTP proxy from the environment.
func transport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10}
}

// client returns a client that does not follow redirects, because a redirect is an answer too.
func client(t *http.Transport) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func httpCheck(u *url.URL) func(context.Context, *attempt) error {
	c := client(transport())
	return func(ctx context.Context, _ *attempt) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return finalError{plain(err)}
		}
		req.Header.Set("User-Agent", userAgent)
		res, err := c.Do(req)
		if err != nil {
			return plain(err)
		}
		defer res.Body.Close()
		if res.StatusCode < 200 || res.StatusCode > 399 {
			return fmt.Errorf("status %d", res.StatusCode)
		}
		return nil
	}
}

const userAgent = "outrider-ready"

// plain returns err without the address and the operation: the address is already in the condition's name, and
// may contain a token.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		switch {
		case dns.IsNotFound:
			return errors.New("no such host")
		case dns.IsTimeout:
			return errors.New("the name server does not answer")
		}
		return errors.New("looking up the host: " + visible(dns.Err[strings.LastIndex(dns.Err, ": ")+1:]))
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
		var sys *os.SyscallError
		if errors.As(err, &sys) {
			err = sys.Err
		}
	}
	return err
}
