package dns

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"outrider.dev/internal/names/wire"
)

// A ControlPlane is asked for names over mutual TLS, on one connection that is kept. It
// is one unary call of gRPC, framed over net/http.
type ControlPlane struct {
	Address string // host:port
	TLS     *tls.Config

	mu        sync.Mutex
	transport *http.Transport
}

// maxAnswer bounds an answer: 16 names with 1000 addresses each fit.
const maxAnswer = 1 << 20

// Resolve is a [Resolver].
func (c *ControlPlane) Resolve(ctx context.Context, names []string) ([]wire.Answer, error) {
	t := c.connected()
	answers, err := c.call(ctx, t, names)
	if err != nil {
		// The connection may be dead, or older than our certificate: the next question
		// makes a new one.
		c.leave(t)
		return nil, fmt.Errorf("asking %s for names: %w", c.Address, err)
	}
	return answers, nil
}

// Close ends the connection.
func (c *ControlPlane) Close() {
	c.mu.Lock()
	t := c.transport
	c.mu.Unlock()
	if t != nil {
		c.leave(t)
	}
}

func (c *ControlPlane) connected() *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport == nil {
		protocols := &http.Protocols{}
		protocols.SetHTTP2(true)
		// No proxy from the environment: HTTP_PROXY is the application's.
		c.transport = &http.Transport{
			TLSClientConfig: c.TLS, Protocols: protocols, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
			HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		}
	}
	return c.transport
}

func (c *ControlPlane) leave(t *http.Transport) {
	c.mu.Lock()
	if c.transport == t {
		c.transport = nil
	}
	c.mu.Unlock()
	t.CloseIdleConnections()
	// What others still wait for on it ends by their own deadlines, within moments.
	time.AfterFunc(2*patience, t.CloseIdleConnections)
}

func (c *ControlPlane) call(ctx context.Context, t *http.Transport, names []string) ([]wire.Answer, error) {
	message := wire.Request{Names: names}.Marshal()
	// A flag and the length are in front of each message.
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.Address+wire.Path, bytes.NewReader(append(body, message...)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", "outrider-agent")
	if end, ok := ctx.Deadline(); ok {
		req.Header.Set("Grpc-Timeout", strconv.FormatInt(max(1, time.Until(end).Milliseconds()), 10)+"m")
	}
	res, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1)) // trailers come after it
	if err != nil {
		return nil, err
	}
	return understood(res, raw, len(names))
}

// understood reads an answer of gRPC that should be about n names.
func understood(res *http.Response, raw []byte, n int) ([]wire.Answer, error) {
	end := res.Trailer
	if end.Get("Grpc-Status") == "" {
		end = res.Header // where there is no body
	}
	if code := end.Get("Grpc-Status"); res.StatusCode != http.StatusOK || code != "0" {
		message, _ := url.PathUnescape(end.Get("Grpc-Message"))
		return nil, fmt.Errorf("HTTP status %d, gRPC status %q: %q", res.StatusCode, code, message)
	}
	if len(raw) < 5 || raw[0] != 0 || uint64(binary.BigEndian.Uint32(raw[1:])) != uint64(len(raw)-5) {
		return nil, fmt.Errorf("an answer of %d bytes, which is not one plain message", len(raw))
	}
	response, err := wire.ParseResponse(raw[5:])
	if err != nil {
		return nil, err
	}
	if len(response.Answers) != n {
		return nil, fmt.Errorf("%d answers for %d names", len(response.Answers), n)
	}
	return response.Answers, nil
}
