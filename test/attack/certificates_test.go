package attack

import (
	"context"
	"crypto/tls"
	"strings"

	"outrider.dev/internal/wire"
)

// Certificates: any client that reaches the port, without an identity.
var certificates = []attacked{
	{
		name:     "certificates: 60 requests of 15 MB, unauthenticated",
		ordinary: certificate,
		attack: byTLS(func(ctx context.Context, v victim, config *tls.Config) (string, error) {
			request := wire.CertificateRequest{CSR: strings.Repeat("A", 15_000_000)}
			return repeat(ctx, v.n(10, 60), func(ctx context.Context, _ int) error {
				connection, err := v.grpc(config)
				if err != nil {
					return err
				}
				defer connection.Close()
				return v.certificate(ctx, connection, request, "")
			})
		}),
	},
}
