package bootconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// HTTPOptions of [NewHTTP]. The zero value of a field means its default.
type HTTPOptions struct {
	// Header is sent with each request. Errors never contain its values.
	Header http.Header
	// Authorize is called with each request before it is sent. It can set credentials that change, such as a
	// token in a file. An error of Authorize ends the fetch; it must not contain secrets.
	Authorize func(*http.Request) error
	// Transport replaces the transport that this package creates, for example to use client certificates. The
	// default is like http.DefaultTransport, which uses the proxies from the environment.
	Transport http.RoundTripper
	// PlaintextCredentials allows Header and Authorize with an http:// address other than a loopback
	// address.
	PlaintextCredentials bool
}

// HTTP is a provider that fetches a document by GET. Create it with [NewHTTP].
//
// The version is the ETag, sent as If-None-Match. A document of a server without ETags is fetched in full each
// time; if its bytes are the same, nothing changes. A long poll is sent as "Prefer: wait=SECONDS" (RFC 7240,
// section 4.3). A server that supports it answers with the document as soon as that has another ETag, or with 304
// when the time is over.
//
// Only a response with status 200 is a document. At most three redirects are followed, and only to the same
// scheme, host and port, because the headers are sent along. A response that may have been cut off without any
// sign (HTTP/1 without Content-Length, chunks or compression) is refused. Retry-After is respected.
type HTTP struct {
	address *url.URL
	name    string
	options HTTPOptions
	client  http.Client
}

// NewHTTP returns a provider for an http:// or https:// address. The error names an invalid option.
func NewHTTP(address string, o HTTPOptions) (*HTTP, error) {
	u, err := url.Parse(address)
	if err != nil { // err may quote a password
		return nil, errors.New("address of the HTTP provider: it is not a URL")
	}
	name := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	credentials := len(o.Header) > 0 || o.Authorize != nil
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("address %s: the scheme must be http or https", name)
	case u.Hostname() == "":
		return nil, fmt.Errorf("address %s: it has no host", name)
	case u.User != nil:
		return nil, fmt.Errorf("address %s: it must contain no user and password; use HTTPOptions.Header or Authorize", name)
	case u.Scheme == "http" && credentials && !o.PlaintextCredentials && !isLoopback(u.Hostname()):
		return nil, fmt.Errorf("address %s: headers would be sent unencrypted; use https, or set PlaintextCredentials", name)
	}
	transport := o.Transport
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 1
		t.MaxResponseHeaderBytes = 64 << 10
		transport = t
	}
	o.Header = o.Header.Clone()
	u.Fragment = ""
	return &HTTP{address: u, name: name, options: o, client: http.Client{Transport: transport, CheckRedirect: sameOrigin}}, nil
}

// String returns the address without its query.
func (h *HTTP) String() string { return h.name }

// GoString returns String(), so that %#v shows no header.
func (h *HTTP) GoString() string { return h.name }

// Fetch implements [Provider].
func (h *HTTP) Fetch(ctx context.Context, r Request) (Document, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.address.String(), nil)
	if err != nil {
		return Document{}, err
	}
	for key, values := range h.options.Header { // any order: the keys differ
		request.Header[http.CanonicalHeaderKey(key)] = values
	}
	if host := h.options.Header.Get("Host"); host != "" {
		request.Host = host
	}
	if r.Version != "" {
		request.Header.Set("If-None-Match", r.Version)
		if r.Wait > 0 {
			request.Header.Set("Prefer", "wait="+strconv.Itoa(int(r.Wait.Seconds())))
		}
	}
	if h.options.Authorize != nil {
		if err := h.options.Authorize(request); err != nil {
			return Document{}, fmt.Errorf("authorizing: %w", err)
		}
	}
	response, err := h.client.Do(request)
	if err != nil {
		h.client.CloseIdleConnections() // otherwise the next fetch would reuse a dead HTTP/2 connection
		return Document{}, withoutAddress(err)
	}
	defer response.Body.Close()
	d, err := document(response, r)
	if err != nil && response.StatusCode == http.StatusOK {
		h.client.CloseIdleConnections()
	}
	return d, err
}

// document reads the document from a response. Status 304 becomes [ErrUnchanged].
func document(response *http.Response, r Request) (Document, error) {
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		return Document{}, ErrUnchanged
	default:
		err := fmt.Errorf("the centre answers %d %s", response.StatusCode, http.StatusText(response.StatusCode))
		if after, ok := retryAfter(response.Header.Get("Retry-After"), time.Now()); ok {
			return Document{}, &RetryAfterError{After: after, Err: err}
		}
		return Document{}, err
	}
	if response.ProtoMajor == 1 && response.ContentLength < 0 && len(response.TransferEncoding) == 0 && !response.Uncompressed {
		return Document{}, errors.New("the answer has neither a length nor chunks: it may be cut off")
	}
	if response.ContentLength > r.MaxSize {
		return Document{}, tooLarge(r.MaxSize)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, r.MaxSize+1))
	if err != nil {
		return Document{}, fmt.Errorf("reading the answer: %w", err)
	}
	if int64(len(data)) > r.MaxSize {
		return Document{}, tooLarge(r.MaxSize)
	}
	return Document{Version: response.Header.Get("ETag"), Data: data}, nil
}

// sameOrigin refuses a redirect to another origin: the headers of the first request may be secret. It also
// refuses more than three redirects.
func sameOrigin(request *http.Request, via []*http.Request) error {
	from := via[0].URL
	if request.URL.Scheme != from.Scheme || request.URL.Host != from.Host {
		return fmt.Errorf("the centre redirects to another origin, %s://%s", request.URL.Scheme, request.URL.Host)
	}
	if len(via) > 3 {
		return errors.New("the centre redirects more than three times")
	}
	return nil
}

// withoutAddress removes the address from an error of net/http: its query may be secret, and the error
// already contains the name of the provider.
func withoutAddress(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// retryAfter parses a Retry-After header: seconds, or a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(value, 10, 63); err == nil {
		return time.Duration(min(seconds, uint64(longestAsked/time.Second))) * time.Second, true
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(date.Sub(now), 0), longestAsked), true
	}
	return 0, false
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
