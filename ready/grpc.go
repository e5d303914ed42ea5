package ready

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// grpcCheck returns a check that calls Health/Check of gRPC's health protocol (grpc/health/v1/health.proto), over
// HTTP/2 without TLS. It does not need the gRPC library. An empty service means the whole server.
func grpcCheck(address, service string) func(context.Context, *attempt) error {
	t := transport()
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true)
	c := client(t)
	to := url.URL{Scheme: "http", Host: address, Path: "/grpc.health.v1.Health/Check"}
	message := healthRequest(service)
	return func(ctx context.Context, _ *attempt) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(message))
		if err != nil {
			return finalError{plain(err)}
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("TE", "trailers")
		req.Header.Set("User-Agent", userAgent)
		res, err := c.Do(req)
		if err != nil {
			return plain(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(io.LimitReader(res.Body, maxHealth+1))
		if err != nil {
			return plain(err)
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d of HTTP", res.StatusCode)
		}
		return healthAnswer(res.Header, res.Trailer, body)
	}
}

const maxHealth = 4 << 10 // maximum bytes of an answer, which contains only a number

// healthRequest returns a HealthCheckRequest with gRPC's frame; field 1 is the service's name.
func healthRequest(service string) []byte {
	var message []byte
	if service != "" {
		message = append([]byte{1<<3 | 2}, binary.AppendUvarint(nil, uint64(len(service)))...)
		message = append(message, service...)
	}
	frame := make([]byte, 5, 5+len(message))
	binary.BigEndian.PutUint32(frame[1:], uint32(len(message)))
	return append(frame, message...)
}

var errNoHealth = errors.New("the answer is none of gRPC's health service")

// healthAnswer returns nil if an answer says that the service is serving. The status of a failed call may be in
// the header instead of the trailer.
func healthAnswer(header, trailer http.Header, body []byte) error {
	status, message := trailer.Get("Grpc-Status"), trailer.Get("Grpc-Message")
	if status == "" {
		status, message = header.Get("Grpc-Status"), header.Get("Grpc-Message")
	}
	switch code, err := strconv.ParseUint(status, 10, 8); {
	case err != nil:
		return errNoHealth
	case code == 5:
		return errors.New("the server does not know this service (gRPC status 5)")
	case code == 12:
		return errors.New("the server has no health service (gRPC status 12)")
	case code != 0:
		return fmt.Errorf("gRPC status %d %s", code, visible(message))
	}
	if len(body) < 5 || len(body) > maxHealth || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 {
		return errNoHealth
	}
	switch serving, err := firstNumber(body[5:]); {
	case err != nil:
		return err
	case serving != 1:
		names := map[uint64]string{0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
		return fmt.Errorf("the service is %s (%d)", names[serving], serving)
	}
	return nil
}

// firstNumber returns the number in field 1 of a protobuf message; 0 if the field is absent. It skips other
// fields.
func firstNumber(m []byte) (number uint64, err error) {
	next := func() (v uint64) {
		var n int
		if v, n = binary.Uvarint(m); n <= 0 {
			m, err = nil, errNoHealth
			return 0
		}
		m = m[n:]
		return v
	}
	skip := func(n uint64) {
		if n > uint64(len(m)) {
			m, err = nil, errNoHealth
			return
		}
		m = m[n:]
	}
	for len(m) > 0 {
		switch key := next(); key & 7 {
		case 0:
			if v := next(); key>>3 == 1 {
				number = v
			}
		case 1:
			skip(8)
		case 2:
			skip(next())
		case 5:
			skip(4)
		default:
			return 0, errNoHealth
		}
	}
	return number, err
}
