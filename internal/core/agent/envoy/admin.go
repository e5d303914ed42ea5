package envoy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A Drain is a kind of drain of Envoy's listeners: the query of a request to /drain_listeners. The descriptions
// were measured on Envoy 1.40; other releases and Envoy's documentation differ. No drain changes /ready, and
// none ends the process.
type Drain string

// The kinds of drains.
const (
	// DrainInbound serves new inbound connections until the drain time is over, then
	// refuses them; responses have "connection: close".
	DrainInbound Drain = "inboundonly&graceful"
	// DiscourageInbound adds "connection: close" to responses, and never ends the listeners.
	DiscourageInbound Drain = "inboundonly&graceful&skip_exit"
	// Discourage does the same in both directions.
	Discourage Drain = "graceful&skip_exit"
	// CloseInbound refuses new inbound connections from now on.
	CloseInbound Drain = "inboundonly"
)

// bodyLimit bounds a response body. The statistics of 10,000 clusters are about 20 MB.
const bodyLimit = 64 << 20

// An Admin is a client of one Envoy's admin interface.
type Admin struct {
	client http.Client
	base   string
}

// NewAdmin returns a client of the admin interface of an Envoy that was started with o. A request
// ends after timeout; zero means 1s.
func NewAdmin(o Options, timeout time.Duration) *Admin {
	o = o.withDefaults()
	network, address := "tcp", netip.AddrPortFrom(o.Family.loopback(), o.Admin.Port).String()
	host := address
	if o.Admin.Socket != "" {
		network, address, host = "unix", o.Admin.Socket, "envoy"
	}
	var d net.Dialer
	return &Admin{base: "http://" + host, client: http.Client{
		Timeout: cmp.Or(timeout, time.Second),
		// No proxy from the environment: HTTP_PROXY is meant for the application.
		Transport: &http.Transport{
			DialContext:  func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, network, address) },
			MaxIdleConns: 2, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
		},
	}}
}

// Close closes idle connections, so that a new Envoy on the same address gets new ones.
func (a *Admin) Close() { a.client.CloseIdleConnections() }

// A StatusError is a response with a status other than 200.
type StatusError struct {
	Path   string
	Status int
	Body   string // beginning of the body
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("Envoy's admin interface: %s: %d %s", e.Path, e.Status, strings.TrimSpace(e.Body))
}

// do returns the response body, whatever the status.
func (a *Admin) do(ctx context.Context, method, path string, query string) ([]byte, error) {
	u := a.base + path
	if query != "" {
		u += "?" + query
	}
	req, err := http.NewRequestWithContext(ctx, method, u, nil)
	if err != nil {
		return nil, fmt.Errorf("requesting Envoy's %s: %w", path, err)
	}
	res, err := a.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the message already contains the path
		}
		return nil, fmt.Errorf("requesting Envoy's %s: %w", path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, bodyLimit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading Envoy's %s: %w", path, err)
	case len(body) > bodyLimit:
		return nil, fmt.Errorf("reading Envoy's %s: more than %d bytes", path, bodyLimit)
	case res.StatusCode != http.StatusOK:
		return body, &StatusError{Path: path, Status: res.StatusCode, Body: string(body[:min(len(body), 500)])}
	}
	return body, nil
}

// Ready reports whether Envoy is LIVE, and returns Envoy's name of its state. An Envoy that is LIVE
// may have no bound listener: rejected listeners do not count.
func (a *Admin) Ready(ctx context.Context) (ready bool, state string, err error) {
	body, err := a.do(ctx, http.MethodGet, "/ready", "")
	var status *StatusError
	if errors.As(err, &status) && status.Status == http.StatusServiceUnavailable {
		return false, strings.TrimSpace(string(body)), nil
	}
	return err == nil, strings.TrimSpace(string(body)), err
}

// Drain starts a drain of the kind d.
func (a *Admin) Drain(ctx context.Context, d Drain) error {
	_, err := a.do(ctx, http.MethodPost, "/drain_listeners", string(d))
	return err
}

// SetLevels sets the log levels of a running Envoy.
func (a *Admin) SetLevels(ctx context.Context, l Log) error {
	l.Level = cmp.Or(l.Level, "warning")
	if _, err := a.do(ctx, http.MethodPost, "/logging", "level="+l.Level); err != nil {
		return err
	}
	_, err := a.do(ctx, http.MethodPost, "/logging", url.Values{"paths": {componentLevels(l)}}.Encode())
	return err
}

// Stats returns the counters and gauges whose names match filter, an RE2 expression.
func (a *Admin) Stats(ctx context.Context, filter string) (map[string]uint64, error) {
	return a.stats(ctx, url.Values{"format": {"json"}, "filter": {filter}})
}

// Used returns the same as Stats, without those that have kept their first value since Envoy's start.
func (a *Admin) Used(ctx context.Context, filter string) (map[string]uint64, error) {
	return a.stats(ctx, url.Values{"format": {"json"}, "filter": {filter}, "usedonly": {""}})
}

func (a *Admin) stats(ctx context.Context, q url.Values) (map[string]uint64, error) {
	body, err := a.do(ctx, http.MethodGet, "/stats", q.Encode())
	if err != nil {
		return nil, err
	}
	var form struct {
		Stats []struct {
			Name  string
			Value json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &form); err != nil {
		return nil, fmt.Errorf("reading Envoy's statistics: %w", err)
	}
	out := map[string]uint64{}
	for _, s := range form.Stats {
		// Text readouts and histograms have no numeric value.
		if v, err := strconv.ParseUint(string(s.Value), 10, 64); err == nil && s.Name != "" {
			out[s.Name] = v
		}
	}
	return out, nil
}

// Get returns the body of a response, for example of /config_dump or /stats/prometheus.
func (a *Admin) Get(ctx context.Context, path, query string) ([]byte, error) {
	return a.do(ctx, http.MethodGet, path, query)
}
