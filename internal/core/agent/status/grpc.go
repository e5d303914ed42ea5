package status

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"outrider.dev/internal/base/wire"
)

// appTransport connects to the app as the kubelet does: it does not verify certificates, and
// makes a connection for each probe.
var appTransport = &http.Transport{
	DialContext:       dialApp,
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the kubelet's rule for HTTPS probes
	ForceAttemptHTTP2: true, DisableKeepAlives: true, DisableCompression: true,
	MaxResponseHeaderBytes: 64 << 10,
}

// grpcTransport speaks HTTP/2 without TLS, as the kubelet's gRPC probes do.
var grpcTransport = func() *http.Transport {
	t := &http.Transport{DialContext: dialApp, DisableKeepAlives: true, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}()

// tryGRPC makes a gRPC probe, which is one unary call.
func tryGRPC(ctx context.Context, address, service string) error {
	if err := wire.Healthy(ctx, grpcTransport, address, service, ""); err != nil {
		return fmt.Errorf("grpc: %w", err)
	}
	return nil
}
