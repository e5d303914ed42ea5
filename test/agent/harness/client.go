package harness

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"outrider.dev/test/ns"
)

// A Client asks over HTTP, from a namespace, as a user.
type Client struct {
	*http.Client
	transport *http.Transport
}

// NewClient makes one that keeps connections; it waits for ten seconds at most, unless
// asked for a longer hold.
func NewClient(in *ns.Namespace, user int) *Client {
	tr := &http.Transport{DialContext: Dialer(in, user), MaxIdleConnsPerHost: 16}
	return &Client{Client: &http.Client{Transport: tr, Timeout: 40 * time.Second}, transport: tr}
}

// Dialer connects from a namespace, as a user.
func Dialer(in *ns.Namespace, user int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, to string) (c net.Conn, err error) {
		in.As(user, user, func() { c, err = (&net.Dialer{}).DialContext(ctx, network, to) })
		return c, err
	}
}

// Close ends idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// An Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error
	Took   time.Duration
	Close  bool // the connection is to be closed
}

// Get asks.
func (c *Client) Get(url string) Answer { return c.Do("GET", url, nil) }

// Do asks with a method; set may change the request.
func (c *Client) Do(method, url string, set func(*http.Request)) (a Answer) {
	begin := time.Now()
	defer func() { a.Took = time.Since(begin) }()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return Answer{Err: err}
	}
	if set != nil {
		set(req)
	}
	res, err := c.Client.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return Answer{Status: res.StatusCode, Header: res.Header, Body: string(body), Err: err, Close: res.Close}
}

// Listen opens a port in a namespace, as a user, on all addresses.
func Listen(w *World, in *ns.Namespace, user int, address string) net.Listener {
	w.T.Helper()
	var l net.Listener
	var err error
	in.As(user, user, func() { l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", address) })
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { l.Close() })
	return l
}

// Ask is Do with a host of its own in the request.
func (c *Client) Ask(method, url, host string) Answer {
	return c.Do(method, url, func(r *http.Request) { r.Host = host })
}
