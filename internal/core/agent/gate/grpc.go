package gate

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"outrider.dev/internal/base/wire"
)

// check probes with gRPC's health protocol, as the kubelet does.
func (g *GRPC) check(ctx context.Context) error {
	transport := plainTransport()
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSelf(ctx, "", g.Port) }

	service := ""
	if g.Service != nil {
		service = *g.Service
	}
	return wire.Healthy(ctx, transport, "localhost:"+strconv.Itoa(int(g.Port)), service, "kube-probe/outrider")
}
