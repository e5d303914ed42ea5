package gate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// grpcServing is grpc.health.v1.HealthCheckResponse.SERVING.
const grpcServing = 1

// check makes the one call of gRPC's health protocol, grpc.health.v1.Health/Check, over
// HTTP/2 without TLS, as the kubelet does. A client library would cost the agent more
// than all the rest of it.
func (g *GRPC) check(ctx context.Context) error {
	transport := plainTransport()
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSelf(ctx, "", g.Port) }
	defer transport.CloseIdleConnections()

	var message []byte // HealthCheckRequest: string service = 1
	if g.Service != nil && *g.Service != "" {
		message = append(message, 1<<3|2)
		message = binary.AppendUvarint(message, uint64(len(*g.Service)))
		message = append(message, *g.Service...)
	}
	address := "http://localhost:" + strconv.Itoa(int(g.Port)) + "/grpc.health.v1.Health/Check"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(frame(message)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	req.Header.Set("User-Agent", "kube-probe/outrider")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	for _, h := range []http.Header{resp.Trailer, resp.Header} {
		if status := h.Get("Grpc-Status"); status != "" && status != "0" {
			return fmt.Errorf("gRPC status %s %s", status, h.Get("Grpc-Message"))
		}
	}
	status, err := healthStatus(body)
	if err == nil && status != grpcServing {
		err = fmt.Errorf("serving status %d, want %d (SERVING)", status, grpcServing)
	}
	return err
}

// frame is a message of gRPC on the wire: not compressed, its length, itself.
func frame(message []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return append(out, message...)
}

var errGRPC = errors.New("the answer is no message of gRPC's health protocol")

// healthStatus reads a framed HealthCheckResponse: enum status = 1. Left out it is 0.
func healthStatus(b []byte) (uint64, error) {
	if len(b) < 5 || b[0] != 0 || uint64(binary.BigEndian.Uint32(b[1:])) != uint64(len(b)-5) {
		return 0, errGRPC
	}
	status := uint64(0)
	for b = b[5:]; len(b) > 0; {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag&7 != 0 { // it has no field of another kind
			return 0, errGRPC
		}
		value, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return 0, errGRPC
		}
		if tag>>3 == 1 {
			status = value
		}
		b = b[n+m:]
	}
	return status, nil
}
