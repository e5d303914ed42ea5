package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"outrider.dev/internal/identity/pemfile"
	"outrider.dev/internal/identity/wire"
)

// A Client asks a control plane for certificates. Files are read for each call: tokens
// and roots change under a running agent.
type Client struct {
	Address string // host:port

	// ServerName is asked for in the handshake; default: the host of Address.
	ServerName string
	// Identity is what the control plane's certificate must name: one of these, each a
	// SPIFFE URI or a DNS name. Default: ServerName.
	Identity []string

	RootFile string // PEM of whom to trust
	Roots    []byte // the same, besides the file or instead of it

	TokenFile string            // a token to show; empty: none is needed
	Headers   map[string]string // to be sent besides, as Istio's CA_HEADER_* are
}

// A Call is one request.
type Call struct {
	CSR  []byte        // PEM
	Life time.Duration // to ask for; 0: what the control plane gives
	// Roots are trusted besides the client's own.
	Roots []*x509.Certificate
	// Certificate is shown if the server takes ones like it; nil: none.
	Certificate *tls.Certificate
}

// CreateCertificate returns the chain that the control plane gives, the leaf first. An
// error is a [*Fault].
//
// A control plane whose root was made anew, with the same name, asks for certificates
// like ours and then ends the connection because of it. So after a connection that ended
// badly the token is tried alone.
func (c *Client) CreateCertificate(ctx context.Context, call Call) ([]*x509.Certificate, error) {
	shown := false
	chain, f := c.create(ctx, call, &shown)
	if f != nil && shown && ctx.Err() == nil && (f.Kind == Untrusted || f.Kind == Unreachable) {
		call.Certificate = nil
		again, g := c.create(ctx, call, &shown)
		if g == nil || g.Kind != NoToken {
			chain, f = again, g
		}
	}
	if f != nil {
		return nil, f
	}
	return chain, nil
}

// create is one call over one connection. Shown becomes true if our certificate was.
func (c *Client) create(ctx context.Context, call Call, shown *bool) ([]*x509.Certificate, *Fault) {
	req, f := c.request(ctx, call)
	if f != nil {
		return nil, f
	}
	roots, f := c.roots()
	if f != nil {
		return nil, f
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		// No proxy from the environment: HTTP_PROXY is the application's.
		TLSClientConfig: c.tls(append(roots, call.Roots...), call.Certificate, shown), Protocols: protocols,
		DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
	}
	// One call each half life: the connection would only grow old.
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, c.unanswered(ctx, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1)) // trailers come after it
	if len(body) > maxAnswer {
		return nil, fault(Broken, nil, "%s answers with more than %d bytes", c.Address, maxAnswer)
	}
	if err != nil {
		return nil, c.unanswered(ctx, err)
	}
	if f := verdict(c.Address, res); f != nil {
		return nil, f
	}
	chain, err := answer(body)
	if err != nil {
		return nil, fault(Broken, err, "the control plane %s gives %v", c.Address, err)
	}
	return chain, nil
}

// answer reads a body into certificates.
func answer(body []byte) ([]*x509.Certificate, error) {
	message, err := unframe(body)
	if err != nil {
		return nil, err
	}
	response, err := wire.ParseResponse(message)
	if err != nil {
		return nil, err
	}
	if len(response.Chain) == 0 {
		return nil, errors.New("an answer without a certificate")
	}
	var chain []*x509.Certificate
	for _, text := range response.Chain {
		certs, err := pemfile.Certificates([]byte(text))
		if err != nil {
			return nil, err
		}
		chain = append(chain, certs...)
	}
	return chain, nil
}

func (c *Client) request(ctx context.Context, call Call) (*http.Request, *Fault) {
	body := frame(wire.Request{CSR: string(call.CSR), Life: call.Life}.Marshal())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.Address+wire.Path, bytes.NewReader(body))
	if err != nil {
		return nil, fault(Broken, err, "the control plane's address %q: %v", c.Address, err)
	}
	for name, value := range c.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", "outrider-agent")
	if end, ok := ctx.Deadline(); ok {
		req.Header.Set("Grpc-Timeout", timeout(time.Until(end)))
	}
	token, f := c.token()
	if f != nil && call.Certificate == nil {
		return nil, f // with a certificate it may go without
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// maxFile bounds what is read from a file that is configured.
const maxFile = 1 << 20

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(raw) > maxFile {
		err = errors.New("open " + path + ": more than 1 MiB")
	}
	return raw, err
}

func (c *Client) token() (string, *Fault) {
	if c.TokenFile == "" {
		return "", nil
	}
	raw, err := read(c.TokenFile)
	if err != nil {
		return "", fault(NoToken, err, "there is no token to ask for a certificate with: %v", err)
	}
	token := strings.TrimSpace(string(raw))
	switch {
	case token == "":
		return "", fault(NoToken, nil, "there is no token to ask for a certificate with: %s is empty", c.TokenFile)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fault(NoToken, nil, "there is no token to ask for a certificate with: %s holds something else", c.TokenFile)
	}
	return token, nil
}

// roots are whom the client trusts now.
func (c *Client) roots() ([]*x509.Certificate, *Fault) {
	var all []*x509.Certificate
	if c.RootFile != "" {
		raw, err := read(c.RootFile)
		if err != nil {
			return nil, fault(NoRoots, err, "it is not known yet which control plane to trust: %v", err)
		}
		certs, err := pemfile.Certificates(raw)
		if err != nil {
			return nil, fault(NoRoots, err, "it is not known which control plane to trust: %s: %v", c.RootFile, err)
		}
		all = certs
	}
	if len(c.Roots) > 0 {
		certs, err := pemfile.Certificates(c.Roots)
		if err != nil {
			return nil, fault(NoRoots, err, "it is not known which control plane to trust: %v", err)
		}
		all = append(all, certs...)
	}
	return all, nil
}

// unanswered is why there was no answer.
func (c *Client) unanswered(ctx context.Context, err error) *Fault {
	var f *Fault
	var alert tls.AlertError
	var op *net.OpError
	switch {
	case errors.As(err, &f): // from verify
		return f
	case ctx.Err() != nil:
		return fault(Unreachable, err, "the control plane %s does not answer in time", c.Address)
	case errors.As(err, &alert):
		return fault(Untrusted, err, "the control plane %s ends the handshake: %v", c.Address, alert)
	case errors.As(err, &op) && op.Op == "remote error":
		return fault(Untrusted, err, "the control plane %s ends the handshake: %v", c.Address, op.Err)
	case errors.As(err, new(tls.RecordHeaderError)):
		return fault(Untrusted, err, "%s does not speak TLS; is it a control plane's port?", c.Address)
	}
	return fault(Unreachable, err, "the control plane %s is not reached: %v", c.Address, err)
}
