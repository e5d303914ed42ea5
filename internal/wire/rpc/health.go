package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
)

// serving is HealthCheckResponse.SERVING (grpc/health/v1/health.proto).
const serving = 1

var healthNames = map[uint64]string{0: "UNKNOWN", serving: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

// Healthy asks by gRPC's health protocol whether a service serves, as the kubelet's gRPC
// probes do: over HTTP/2 without TLS. address is host:port; an empty service is the
// server as a whole.
func Healthy(ctx context.Context, transport http.RoundTripper, address, service, userAgent string) error {
	answer, err := Call{
		URL: "http://" + address + "/grpc.health.v1.Health/Check", Message: healthRequest(service),
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

// healthRequest is HealthCheckRequest: field 1, the service's name.
func healthRequest(service string) []byte {
	if service == "" {
		return nil
	}
	return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), service)
}

var errHealth = errors.New("the answer is no HealthCheckResponse")

// healthStatus reads HealthCheckResponse: field 1, a number, which is 0 if it is left out.
// Other fields are of a later version.
func healthStatus(message []byte) (status uint64, err error) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0, errHealth
		}
		message = message[n:]
		if field == 1 {
			if kind != protowire.VarintType {
				return 0, errHealth
			}
			status, n = protowire.ConsumeVarint(message)
		} else {
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return 0, errHealth
		}
		message = message[n:]
	}
	return status, nil
}
