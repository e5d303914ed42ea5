package harness

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// A Client makes HTTP requests from a namespace, as a user.
type Client struct {
	*http.Client
	transport *http.Transport
}

// NewClient makes a client with persistent connections.
func NewClient(in *ns.Namespace, user int) *Client {
	tr := &http.Transport{DialContext: Dialer(in, user), MaxIdleConnsPerHost: 16}
	return &Client{Client: &http.Client{Transport: tr, Timeout: process.Patience}, transport: tr}
}

// Dialer returns a function that connects from a namespace, as a user.
func Dialer(in *ns.Namespace, user int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, to string) (c net.Conn, err error) {
		in.As(user, user, func() { c, err = (&net.Dialer{}).DialContext(ctx, network, to) })
		return c, err
	}
}

// Close ends idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// An Answer is the result of a request: a response or an error.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error
	Took   time.Duration
	Close  bool // the server has requested to close the connection
}

// Get is Do with GET.
func (c *Client) Get(url string) Answer { return c.Do("GET", url, "") }

// Do makes a request; if host is empty, the host of the URL is used.
func (c *Client) Do(method, url, host string) (a Answer) {
	begin := time.Now()
	defer func() { a.Took = time.Since(begin) }()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return Answer{Err: err}
	}
	req.Host = cmp.Or(host, req.Host)
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
