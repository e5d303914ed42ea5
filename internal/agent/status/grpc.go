package status

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// serving is HealthCheckResponse.SERVING (grpc/health/v1/health.proto).
const serving = 1

var healthNames = map[uint64]string{0: "UNKNOWN", serving: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

// tryGRPC makes the one unary call that a gRPC probe is: a length-prefixed message each way,
// and the outcome in the trailers.
func tryGRPC(ctx context.Context, address, service string) error {
	url := "http://" + address + "/grpc.health.v1.Health/Check"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(frame(checkRequest(service))))
	if err != nil {
		return fmt.Errorf("grpc: %w", err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", "outrider-agent")
	res, err := grpcTransport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("grpc: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, probeBody))
	if err != nil {
		return fmt.Errorf("grpc: reading the answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("grpc: HTTP status %d", res.StatusCode)
	}
	code, message := res.Trailer.Get("Grpc-Status"), res.Trailer.Get("Grpc-Message")
	if code == "" { // an answer of headers alone
		code, message = res.Header.Get("Grpc-Status"), res.Header.Get("Grpc-Message")
	}
	if code != "0" {
		return fmt.Errorf("grpc: status %q %.200s", code, message)
	}
	status, err := checkResponse(body)
	switch {
	case err != nil:
		return fmt.Errorf("grpc: %w", err)
	case status != serving:
		return fmt.Errorf("grpc: the service says %d %s", status, healthNames[status])
	}
	return nil
}

// frame puts gRPC's prefix before a message: not compressed, and its length.
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// checkRequest is HealthCheckRequest: field 1, the service's name.
func checkRequest(service string) []byte {
	if service == "" {
		return nil
	}
	out := binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(service)))
	return append(out, service...)
}

// checkResponse reads HealthCheckResponse: field 1, a number. A field that is not there
// is zero.
func checkResponse(body []byte) (status uint64, err error) {
	if len(body) < 5 || body[0] != 0 || uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-5) {
		return 0, errors.New("the answer is no single message")
	}
	for rest := body[5:]; len(rest) > 0; {
		tag, n := binary.Uvarint(rest)
		if n <= 0 {
			return 0, errors.New("the answer is no HealthCheckResponse")
		}
		rest = rest[n:]
		value, n := binary.Uvarint(rest)
		if n <= 0 {
			return 0, errors.New("the answer is no HealthCheckResponse")
		}
		rest = rest[n:]
		switch tag & 7 {
		case 0:
			if tag>>3 == 1 {
				status = value
			}
		case 2: // a field of a later version
			if value > uint64(len(rest)) {
				return 0, errors.New("the answer is cut off")
			}
			rest = rest[value:]
		default:
			return 0, errors.New("the answer is no HealthCheckResponse")
		}
	}
	return status, nil
}
