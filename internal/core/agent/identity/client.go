package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"outrider.dev/internal/base/wire"
)

// A Client requests certificates from a control plane. It reads its files for each call, because tokens and
// roots change while the agent runs.
type Client struct {
	Address string // host:port

	// Identity lists SPIFFE URIs or DNS names. The control plane's certificate must name one of
	// them. Default: the host of Address, if it is a name.
	Identity []string
	// Outriderd requires that the server is outriderd, because the same server sends configuration. Otherwise
	// the server may be only a certificate authority, such as istio-csr.
	Outriderd bool

	RootFile  string // PEM of the trusted roots
	TokenFile string // file with the token of the request; empty: none is needed
}

// A Call contains the parameters of one request.
type Call struct {
	CSR  []byte        // PEM
	Life time.Duration // lifetime to request; 0: the control plane's default
	// Roots are trusted in addition to the client's own.
	Roots []*x509.Certificate
	// Certificate is presented to a server that accepts its issuer; nil: none.
	Certificate *tls.Certificate
}

// CreateCertificate returns the chain from the control plane, the leaf first. An error is a
// [*Fault].
//
// If the control plane has a new root with the same name, it lists the issuer of our certificate as acceptable,
// but rejects the certificate and ends the connection. So after a failed connection the client retries with the
// token alone.
func (c *Client) CreateCertificate(ctx context.Context, call Call) ([]*x509.Certificate, error) {
	chain, shown, f := c.create(ctx, call)
	if f != nil && shown && ctx.Err() == nil && (f.Kind == Untrusted || f.Kind == Unreachable) {
		call.Certificate = nil
		again, _, g := c.create(ctx, call)
		if g == nil || g.Kind != NoToken {
			chain, f = again, g
		}
	}
	if f != nil {
		return nil, f
	}
	return chain, nil
}

// create makes one call on a new connection. The second result says whether our certificate was
// shown.
func (c *Client) create(ctx context.Context, call Call) ([]*x509.Certificate, bool, *Fault) {
	req, f := c.request(call)
	if f != nil {
		return nil, false, f
	}
	roots, f := c.roots()
	if f != nil {
		return nil, false, f
	}
	var shown atomic.Bool // a handshake may continue after the call has ended
	config := c.tls(append(roots, call.Roots...))
	config.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		// A server with another authority would end the handshake because of our certificate.
		if call.Certificate == nil || r.SupportsCertificate(call.Certificate) != nil {
			return &tls.Certificate{}, nil
		}
		shown.Store(true)
		return call.Certificate, nil
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		// No proxy from the environment: HTTP_PROXY is meant for the application.
		TLSClientConfig: config, Protocols: protocols,
		DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		// There is one call per half of a certificate's lifetime, so an idle connection is useless. Moreover,
		// CloseIdleConnections leaves a connection open if its call was refused before its request was read.
		DisableKeepAlives: true,
	}
	message, err := req.Do(ctx, transport)
	if err != nil {
		return nil, shown.Load(), c.failed(ctx, err)
	}
	chain, err := answer(message)
	if err != nil {
		return nil, shown.Load(), fault(Broken, "the control plane %s sends %v", c.Address, err)
	}
	return chain, shown.Load(), nil
}

// answer reads the certificates in a message.
func answer(message []byte) ([]*x509.Certificate, error) {
	response, err := wire.ParseCertificateResponse(message)
	if err != nil {
		return nil, err
	}
	if len(response.Chain) == 0 {
		return nil, errors.New("an answer without a certificate")
	}
	var chain []*x509.Certificate
	for _, text := range response.Chain {
		certs, err := wire.ParseCertificates([]byte(text))
		if err != nil {
			return nil, err
		}
		chain = append(chain, certs...)
	}
	return chain, nil
}

func (c *Client) request(call Call) (wire.Call, *Fault) {
	out := wire.Call{
		URL: "https://" + c.Address + wire.CertificatePath, Header: http.Header{},
		Message: wire.CertificateRequest{CSR: string(call.CSR), Life: call.Life}.Marshal(),
	}
	token, f := c.token()
	if f != nil && call.Certificate == nil {
		return out, f // with a certificate, the token is optional
	}
	if token != "" {
		out.Header.Set("Authorization", "Bearer "+token)
	}
	return out, nil
}

// maxFile bounds the size of a configured file.
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
		return "", fault(NoToken, "there is no token to request a certificate with: %v", err)
	}
	token := strings.TrimSpace(string(raw))
	switch {
	case token == "":
		return "", fault(NoToken, "there is no token to request a certificate with: %s is empty", c.TokenFile)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fault(NoToken, "there is no token to request a certificate with: %s does not hold a token", c.TokenFile)
	}
	return token, nil
}

// roots reads the currently trusted roots.
func (c *Client) roots() ([]*x509.Certificate, *Fault) {
	raw, err := read(c.RootFile)
	if err != nil {
		return nil, fault(NoRoots, "the roots to trust are not known yet: %v", err)
	}
	certs, err := wire.ParseCertificates(raw)
	if err != nil {
		return nil, fault(NoRoots, "the roots to trust are not known: %s: %v", c.RootFile, err)
	}
	return certs, nil
}

// failed converts the error of a call that got no response message into a fault.
func (c *Client) failed(ctx context.Context, err error) *Fault {
	var status *wire.StatusError
	var odd *wire.AnswerError
	var address *url.Error
	switch {
	case errors.As(err, &status):
		return c.refused(status)
	case errors.As(err, &odd):
		return fault(Broken, "%s answers with %s; is it a control plane's port?", c.Address, odd.What)
	case errors.As(err, &address): // nothing was sent
		return fault(Broken, "the control plane's address %q: %v", c.Address, err)
	}
	return c.unanswered(ctx, err)
}

// refused converts the status with which the control plane refused a certificate into a fault.
func (c *Client) refused(status *wire.StatusError) *Fault {
	message := status.Message
	if message == "" {
		message = "without a reason"
	}
	switch status.Code {
	case wire.Unauthenticated, wire.PermissionDenied:
		return fault(Rejected, "the control plane refuses this identity: %s", message)
	case wire.Unavailable, wire.DeadlineExceeded:
		return fault(Unreachable, "the control plane %s cannot answer now: %s", c.Address, message)
	case wire.Unimplemented:
		return fault(Broken, "%s has no certificate service: %s", c.Address, message)
	case wire.ResourceExhausted:
		return fault(Broken, "the control plane is overloaded: %s", message)
	}
	return fault(Broken, "the control plane %s failed with status %d: %s", c.Address, status.Code, message)
}

// unanswered converts the error of a call that got no response at all.
func (c *Client) unanswered(ctx context.Context, err error) *Fault {
	if ctx.Err() != nil && !errors.As(err, new(*Fault)) {
		return fault(Unreachable, "the control plane %s does not answer in time", c.Address)
	}
	return Unconnected(c.Address, err)
}

// Unconnected explains why there is no connection to the control plane at address, by the error of
// a connection attempt with [Keeper.TLS] or [Client].
func Unconnected(address string, err error) *Fault {
	var f *Fault
	var alert tls.AlertError
	var op *net.OpError
	switch {
	case errors.As(err, &f): // from verify
		return f
	case errors.As(err, &alert):
		return fault(Untrusted, "the control plane %s ends the handshake: %v", address, alert)
	case errors.As(err, &op) && op.Op == "remote error":
		return fault(Untrusted, "the control plane %s ends the handshake: %v", address, op.Err)
	case errors.As(err, new(tls.RecordHeaderError)):
		return fault(Untrusted, "%s does not speak TLS; is it a control plane's port?", address)
	}
	return fault(Unreachable, "the control plane %s is not reached: %v", address, err)
}
