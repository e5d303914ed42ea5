package resilience

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Transport applies a policy to the requests of an http.Client, with a breaker, bulkhead and limiter
// for each host (scheme, name and port).
//
//   - A request is repeated if it has an idempotent method (RFC 9110, section 9.2.2: GET, HEAD, OPTIONS, TRACE,
//     PUT, DELETE), a header Idempotency-Key or X-Idempotency-Key, or a context of [WithIdempotent]; any other
//     request is repeated only if it was not sent.
//   - A request with a body is repeated only if it has a GetBody, which http.NewRequest sets for the readers of
//     packages bytes and strings, or if the body is not larger than HTTPOptions.BufferBody.
//   - The response of the last try is returned unchanged, even if its status is a failure, unless there is a
//     Fallback.
//   - The responses of other tries are closed. Up to 64 KiB of their bodies are read for up to 50 ms, so that
//     the connection can be reused.
//   - Requests whose scheme is neither http nor https are passed to the base unchanged.
type Transport struct {
	base    http.RoundTripper
	options HTTPOptions
	policy  *Policy
}

// NewTransport returns a transport that sends its requests through base, or through
// http.DefaultTransport if base is nil. The error names every invalid option.
func NewTransport(base http.RoundTripper, o HTTPOptions) (*Transport, error) {
	policy, err := New(o.Options)
	if err := errors.Join(err, o.check()); err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	if o.Classify == nil {
		o.Classify = ClassifyHTTP
	}
	return &Transport{base, o, policy}, nil
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return t.base.RoundTrip(req)
	}
	c := &call{Policy: t.policy.For(targetOf(req.URL)), single: true, idempotent: t.options.Idempotent || idempotent(req), release: release}
	ctx, cancel := c.begin(req.Context())
	defer cancel()
	body, err := newBody(ctx, req, t.options.BufferBody)
	if err != nil {
		return nil, err
	}
	defer body.closeUnused()
	c.replayable = body.replayable
	c.do = func(ctx context.Context, n int, o *outcome) {
		resp, err := t.send(ctx, req, body, n)
		o.err = err
		if resp != nil {
			o.value, o.after = resp, retryAfter(resp.Header, time.Now())
		}
		if o.class = Answered; !body.broken.Load() { // if the request body cannot be read, the error says nothing about the host
			o.class = t.options.Classify(resp, err)
		}
	}
	o := c.run(ctx)
	resp, _ := o.value.(*http.Response)
	if t.options.Fallback == nil || o.good() || req.Context().Err() != nil {
		return resp, o.err
	}
	return t.fallback(req, c, o)
}

func targetOf(u *url.URL) string { return u.Scheme + "://" + strings.ToLower(u.Host) }

// CloseIdleConnections closes the idle connections of the base transport. http.Client.CloseIdleConnections calls
// it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// fallback replaces a failure by the result of Fallback.
func (t *Transport) fallback(req *http.Request, c *call, o *outcome) (*http.Response, error) {
	err := o.err
	if resp, ok := o.value.(*http.Response); ok && err == nil {
		err = &StatusError{resp.StatusCode}
		release(o, true)
	}
	c.emit(req.Context(), Event{Decision: DecidedFallback, Target: c.target.name, Class: o.class, Try: int(c.tries.Load()), Err: err})
	resp, err := t.options.Fallback(req, err)
	if resp != nil && resp.Body == nil {
		resp.Body = http.NoBody // as http.Client requires
	}
	return resp, err
}

// send makes one try. ctx limits it until the response's header has arrived. After that, only the request's own
// context limits reading the response body.
func (t *Transport) send(ctx context.Context, req *http.Request, body *body, n int) (*http.Response, error) {
	tryCtx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	try := req.WithContext(tryCtx)
	var err error
	if try.Body, err = body.next(n); err != nil {
		stop()
		cancel(nil)
		return nil, err
	}
	resp, err := t.base.RoundTrip(try)
	if resp != nil && resp.Body == nil {
		resp.Body = http.NoBody // a base other than net/http may leave it nil
	}
	if !stop() && err == nil {
		// ctx ended when the header arrived, and has cancelled the response's context.
		resp.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp.Body = withCancel(resp.Body, cancel)
	return resp, nil
}

// idempotent reports whether the request may be sent twice.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	// net/http recognises both headers; the second is the older name.
	return req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != "" || isIdempotent(req.Context())
}

// A responseBody cancels the context of its try once it has been read to the end or closed.
type responseBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.cancel(nil)
	}
	return n, err
}

func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// An upgradedBody is the body of a response "101 Switching Protocols". It is the connection, so it can also be
// written.
type upgradedBody struct {
	responseBody
	io.Writer
}

func withCancel(body io.ReadCloser, cancel context.CancelCauseFunc) io.ReadCloser {
	if w, ok := body.(io.Writer); ok {
		return &upgradedBody{responseBody{body, cancel}, w}
	}
	return &responseBody{body, cancel}
}

const (
	drainBytes = 64 << 10
	drainTime  = 50 * time.Millisecond
)

// release closes a response that is not returned. For a connection to be reused, the rest of the body must be
// read. A goroutine does this, for a short time, so that the call is not delayed.
func release(o *outcome, reuse bool) {
	resp, ok := o.value.(*http.Response)
	if !ok {
		return
	}
	if !reuse || resp.Body == http.NoBody {
		resp.Body.Close()
		return
	}
	go func() {
		timer := time.AfterFunc(drainTime, func() { resp.Body.Close() })
		defer timer.Stop()
		io.CopyN(io.Discard, resp.Body, drainBytes)
		resp.Body.Close()
	}()
}

// A body provides the request body for each try.
type body struct {
	first      io.ReadCloser
	mu         sync.Mutex // a GetBody need not be safe for concurrent use by hedges
	again      func() (io.ReadCloser, error)
	replayable bool
	used       atomic.Bool // a try has used the first body
	broken     atomic.Bool // the body could not be read or created again
}

// newBody returns the body of a request. If the request has no GetBody and a body of at most limit bytes,
// newBody reads the body into memory; if that fails, it closes the body and returns the error.
func newBody(ctx context.Context, req *http.Request, limit int64) (*body, error) {
	b := &body{first: req.Body, again: req.GetBody}
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		b.again = func() (io.ReadCloser, error) { return req.Body, nil }
	case req.GetBody != nil || limit <= 0 || req.ContentLength > limit:
	default:
		if err := b.buffer(ctx, limit); err != nil {
			return nil, err
		}
	}
	if b.replayable = b.again != nil; !b.replayable {
		b.first = &sourceBody{b.first, b}
	}
	return b, nil
}

// A sourceBody sets body.broken if reading the caller's body fails.
type sourceBody struct {
	io.ReadCloser
	body *body
}

func (s *sourceBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		s.body.broken.Store(true)
	}
	return n, err
}

// buffer reads at most limit+1 bytes. If the body is longer, the bytes read are put back in front of the rest. If
// ctx ends first, it closes the body and returns the cause.
func (b *body) buffer(ctx context.Context, limit int64) error {
	type result struct {
		data []byte
		err  error
	}
	source, done := b.first, make(chan result, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(source, limit+1))
		done <- result{data, err}
	}()
	select {
	case <-ctx.Done():
		source.Close()
		return context.Cause(ctx)
	case r := <-done:
		if r.err != nil {
			source.Close()
			return r.err
		}
		if int64(len(r.data)) > limit {
			b.first = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(strings.NewReader(string(r.data)), source), source}
			return nil
		}
		source.Close()
		b.again = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(r.data))), nil }
		b.first, _ = b.again()
		return nil
	}
}

// next returns the request body for try n. Try 1 gets the first body, which the transport closes; later ones get
// a new copy.
func (b *body) next(n int) (io.ReadCloser, error) {
	if n == 1 {
		b.used.Store(true)
		return b.first, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	again, err := b.again()
	if err != nil {
		b.broken.Store(true)
		return nil, fmt.Errorf("resilience: GetBody of the request, for try %d: %w", n, err)
	}
	return again, nil
}

// closeUnused closes the body if no try used it, because RoundTrip must close the request's body in any case.
func (b *body) closeUnused() {
	if b.first != nil && !b.used.Load() {
		b.first.Close()
	}
}
