package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// serving is HealthCheckResponse.SERVING (grpc/health/v1/health.proto).
const serving = 1

var healthNames = map[uint64]string{0: "UNKNOWN", serving: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

// Healthy calls gRPC's health service over HTTP/2 without TLS, as the kubelet's gRPC probes do. It returns
// nil if the service is serving. address is host:port; an empty service means the whole server.
func Healthy(ctx context.Context, transport http.RoundTripper, address, service, userAgent string) error {
	var request []byte // HealthCheckRequest: field 1 is the service's name
	if service != "" {
		request = AppendField(nil, 1, service)
	}
	answer, err := Call{
		URL: "http://" + address + "/grpc.health.v1.Health/Check", Message: request,
		UserAgent: userAgent, Limit: 64 << 10,
	}.Do(ctx, transport)
	if err != nil {
		return err
	}
	status, err := healthStatus(answer)
	if err == nil && status != serving {
		err = fmt.Errorf("the service says %d %s, want %d %s", status, healthNames[status], serving, healthNames[serving])
	}
	return err
}

// healthStatus decodes a HealthCheckResponse: field 1 is the status, which is 0 if omitted. Other fields
// belong to later versions.
func healthStatus(message []byte) (status uint64, err error) {
	errHealth := errors.New("the answer is not a HealthCheckResponse")
	err = Fields(message, func(f Field) error {
		if f.Number != 1 {
			return nil
		}
		if f.Kind != VarintField {
			return errHealth
		}
		status = f.Varint
		return nil
	})
	if err != nil {
		return 0, errHealth
	}
	return status, nil
}
