package dns

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"

	"outrider.dev/internal/base/wire"
)

// A ControlPlane resolves names with a unary gRPC call over mutual TLS. It keeps one connection.
type ControlPlane struct {
	Address string // host:port
	TLS     *tls.Config

	mu        sync.Mutex
	transport *http.Transport
}

// maxAnswer bounds an answer: 16 names with 1000 addresses each fit.
const maxAnswer = 1 << 20

// Resolve implements [Resolver].
func (c *ControlPlane) Resolve(ctx context.Context, names []string) ([]wire.Answer, error) {
	t := c.connected()
	answers, err := c.call(ctx, t, names)
	if err != nil {
		// The connection may be dead, or older than our certificate: the next query opens a new
		// one.
		c.drop(t)
		return nil, fmt.Errorf("resolving names at %s: %w", c.Address, err)
	}
	return answers, nil
}

// Close ends the connection.
func (c *ControlPlane) Close() {
	c.mu.Lock()
	t := c.transport
	c.mu.Unlock()
	if t != nil {
		c.drop(t)
	}
}

func (c *ControlPlane) connected() *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport == nil {
		protocols := &http.Protocols{}
		protocols.SetHTTP2(true)
		// No proxy from the environment: HTTP_PROXY is meant for the application.
		c.transport = &http.Transport{
			TLSClientConfig: c.TLS, Protocols: protocols, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
			HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		}
	}
	return c.transport
}

func (c *ControlPlane) drop(t *http.Transport) {
	c.mu.Lock()
	if c.transport == t {
		c.transport = nil
	}
	c.mu.Unlock()
	t.CloseIdleConnections()
	// The first CloseIdleConnections leaves connections with calls open. Before the second one, the deadlines of
	// these calls have passed.
	time.AfterFunc(2*queryTimeout, t.CloseIdleConnections)
}

func (c *ControlPlane) call(ctx context.Context, t *http.Transport, names []string) ([]wire.Answer, error) {
	message, err := wire.Call{URL: "https://" + c.Address + wire.NamesPath, Message: wire.NamesRequest{Names: names}.Marshal(), Limit: maxAnswer}.Do(ctx, t)
	if err != nil {
		return nil, err
	}
	response, err := wire.ParseNamesResponse(message)
	if err != nil {
		return nil, err
	}
	if len(response.Answers) != len(names) {
		return nil, fmt.Errorf("%d answers for %d names", len(response.Answers), len(names))
	}
	return response.Answers, nil
}
