package status

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"outrider.dev/internal/base/wire"
)

// appTransport speaks to the app as the kubelet does: certificates are not looked at, each
// probe is a connection of its own.
var appTransport = &http.Transport{
	DialContext:       dialApp,
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the kubelet's rule for HTTPS probes
	ForceAttemptHTTP2: true, DisableKeepAlives: true, DisableCompression: true,
	MaxResponseHeaderBytes: 64 << 10,
}

// grpcTransport is HTTP/2 without TLS, as gRPC probes are.
var grpcTransport = func() *http.Transport {
	t := &http.Transport{DialContext: dialApp, DisableKeepAlives: true, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}()

// tryGRPC makes the one unary call that a gRPC probe is.
func tryGRPC(ctx context.Context, address, service string) error {
	if err := wire.Healthy(ctx, grpcTransport, address, service, ""); err != nil {
		return fmt.Errorf("grpc: %w", err)
	}
	return nil
}
