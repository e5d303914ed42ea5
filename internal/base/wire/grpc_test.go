package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// plaintext returns a transport for HTTP/2 without TLS.
func plaintext(t testing.TB) *http.Transport {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// serve starts a server of grpc-go with its health service.
func serve(t *testing.T, options ...grpc.ServerOption) (address string, services *health.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, services := grpc.NewServer(options...), health.NewServer()
	healthpb.RegisterHealthServer(server, services)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return l.Addr().String(), services
}

func TestHealthOfAnActualServer(t *testing.T) {
	address, services := serve(t)
	services.SetServingStatus("up", healthpb.HealthCheckResponse_SERVING)
	services.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	for service, want := range map[string]string{
		"": "", "up": "", "down": "2 NOT_SERVING", "unknown": "gRPC status 5: unknown service",
	} {
		switch err := Healthy(t.Context(), plaintext(t), address, service, ""); {
		case want == "" && err != nil:
			t.Errorf("service %q: %v", service, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("service %q: %v, want %q", service, err, want)
		}
	}
}

func TestHeadersAndDeadlineReachTheServer(t *testing.T) {
	var received metadata.MD
	var left time.Duration
	address, _ := serve(t, grpc.UnaryInterceptor(func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		received, _ = metadata.FromIncomingContext(ctx)
		if end, ok := ctx.Deadline(); ok {
			left = time.Until(end)
		}
		return nil, status.Error(codes.ResourceExhausted, "100%\nfull \x00 of \"é\"")
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	call := Call{URL: "http://" + address + "/grpc.health.v1.Health/Check", Header: http.Header{"X-Cluster": {"c1"}}}
	_, err := call.Do(ctx, plaintext(t))
	var got *StatusError
	if !errors.As(err, &got) || got.Code != ResourceExhausted || got.Message != "100% full   of \"é\"" {
		t.Errorf("%+v (%v); want status 8 and its text on one line", got, err)
	}
	if strings.Join(received["x-cluster"], "") != "c1" || !strings.HasPrefix(strings.Join(received["user-agent"], ""), "outrider-agent") {
		t.Errorf("headers %v", received)
	}
	if left < 30*time.Second || left > time.Minute {
		t.Errorf("the server has %s left, want nearly a minute", left)
	}
	call.URL = "http://" + address + "/an.Unknown/Method"
	if _, err := call.Do(ctx, plaintext(t)); !errors.As(err, &got) || got.Code != Unimplemented {
		t.Errorf("no such method: %v", err)
	}
}

func TestALongAnswerIsRefused(t *testing.T) {
	address, _ := serve(t)
	call := Call{URL: "http://" + address + "/grpc.health.v1.Health/Check", Limit: 6}
	_, err := call.Do(t.Context(), plaintext(t))
	var odd *AnswerError
	if !errors.As(err, &odd) || odd.What != "more than 6 bytes" { // the frame contains 7
		t.Errorf("%v, want more than 6 bytes", err)
	}
	call.Limit = 7
	if answer, err := call.Do(t.Context(), plaintext(t)); err != nil || !bytes.Equal(answer, []byte{8, 1}) {
		t.Errorf("%x, %v", answer, err)
	}
}

func TestDeadlinesAsGRPCWritesThem(t *testing.T) {
	for left, want := range map[time.Duration]string{-time.Second: "1m", time.Microsecond: "1m", 10 * time.Second: "10000m", 100 * time.Hour: "360000S", 1<<63 - 1: "99999999S"} {
		if got := timeout(left); got != want {
			t.Errorf("timeout(%s) = %s, want %s", left, got, want)
		}
	}
}

func FuzzUnframe(f *testing.F) {
	f.Add(Frame(nil))
	f.Add(Frame([]byte("message")))
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Add([]byte{0, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		message, err := Unframe(body)
		var odd *AnswerError
		switch {
		case err == nil && !bytes.Equal(Frame(message), body):
			t.Errorf("%x was read as %x", body, message)
		case err != nil && (message != nil || !errors.As(err, &odd)):
			t.Errorf("%x, %v", message, err)
		}
	})
}

// A framed stream of messages is read back unchanged, and whatever ReadMessage accepts, Unframe accepts
// too.
func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("one"), []byte("two"), uint32(3))
	f.Add([]byte{}, []byte("longer"), uint32(1))
	f.Fuzz(func(t *testing.T, a, b []byte, limit uint32) {
		stream := bytes.NewReader(append(Frame(a), Frame(b)...))
		for _, want := range [][]byte{a, b} {
			got, err := ReadMessage(stream, limit)
			if tooLong := len(want) > int(limit); tooLong != (err != nil) || err == nil && !bytes.Equal(got, want) {
				t.Fatalf("%x, limit %d: %x, %v", want, limit, got, err)
			}
			if err != nil {
				return
			}
		}
		if _, err := ReadMessage(stream, limit); err != io.EOF {
			t.Errorf("at the end: %v, want EOF", err)
		}
		if _, err := ReadMessage(bytes.NewReader(a), limit); err == nil {
			_, err = Unframe(a[:prefixLen+int(binary.BigEndian.Uint32(a[1:prefixLen]))])
			if err != nil {
				t.Errorf("%x was read: %v", a, err)
			}
		} else if len(a) > prefixLen && err == io.EOF {
			t.Errorf("%x: half a message is no end of a stream", a)
		}
	})
}

func FuzzVerdict(f *testing.F) {
	f.Add(200, "application/grpc+proto", "0", "", "")
	f.Add(200, "application/grpc", "16", "%zz%0a", "")
	f.Add(200, "application/grpc", "", "", "7")
	f.Fuzz(func(t *testing.T, code int, kind, trailer, message, header string) {
		err := verdict(&http.Response{
			StatusCode: code,
			Header:     http.Header{"Content-Type": {kind}, "Grpc-Status": {header}, "Grpc-Message": {message}},
			Trailer:    http.Header{"Grpc-Status": {trailer}, "Grpc-Message": {message}},
		})
		switch {
		case err == nil && (code != 200 || strings.Trim(trailer, "0") != "" || trailer == "" && strings.Trim(header, "0") != ""):
			t.Errorf("HTTP %d, trailer %q, header %q is taken for success", code, trailer, header)
		case err != nil && (strings.ContainsAny(err.Error(), "\n\r\x00") || len(err.Error()) > 4*(600+len(kind))):
			t.Errorf("an error that is no short line: %q", err)
		}
	})
}

func FuzzHealthStatus(f *testing.F) {
	f.Add([]byte{8, 1})
	f.Add([]byte{8, 1, 18, 1, 'x'})
	f.Add([]byte{18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := healthStatus(message)
		if err != nil {
			if got != 0 {
				t.Errorf("%d, %v", got, err)
			}
			return
		}
		// A later field wins over an earlier one.
		if again, err := healthStatus(append(message, 8, 1)); err != nil || again != serving {
			t.Errorf("%x and SERVING is %d, %v", message, again, err)
		}
	})
}

// Fields reads whatever protobuf's own library reads, except groups and invalid field numbers.
func FuzzFields(f *testing.F) {
	f.Add([]byte{0x08, 0x96, 0x01, 0x12, 0x01, 'x', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{0x0b, 0x0c})
	f.Add([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02})
	f.Fuzz(func(t *testing.T, raw []byte) {
		rest := raw
		err := Fields(raw, func(got Field) error {
			number, kind, n := protowire.ConsumeTag(rest)
			if n < 0 || uint64(number) != got.Number || uint8(kind) != uint8(got.Kind) {
				t.Fatalf("%x: %+v, want field %d of type %d (%d)", raw, got, number, kind, n)
			}
			rest = rest[n:]
			var bytesWant []byte
			var varint uint64
			switch kind {
			case protowire.BytesType:
				bytesWant, n = protowire.ConsumeBytes(rest)
			case protowire.VarintType:
				varint, n = protowire.ConsumeVarint(rest)
			default:
				n = protowire.ConsumeFieldValue(number, kind, rest)
			}
			if n < 0 || !bytes.Equal(got.Bytes, bytesWant) || got.Varint != varint {
				t.Fatalf("%x: %+v, want %x or %d (%d)", raw, got, bytesWant, varint, n)
			}
			rest = rest[n:]
			return nil
		})
		if len(rest) == 0 {
			if err != nil {
				t.Fatalf("%x: %v after the whole message", raw, err)
			}
			return
		}
		if number, kind, n := protowire.ConsumeField(rest); n >= 0 && number <= protowire.MaxValidNumber && kind != protowire.StartGroupType {
			t.Errorf("%x: %v, want field %d", raw, err, number)
		}
	})
}
