package attack

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"

	"golang.org/x/net/http2"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/webhook"
)

// floods are attacks that cost the server more than the client: unfinished handshakes, and many small frames
// and requests whose answers the attacker does not read. The callers are unauthenticated unless the name of the
// case says otherwise.
var floods = []attacked{
	begunHandshakes("floods: handshakes begun, from one address", stream, contract.SecureDiscoveryPort, 1),
	begunHandshakes("floods: handshakes begun, from 2,000 addresses", stream, contract.SecureDiscoveryPort, 2000),
	begunHandshakes("floods: handshakes begun at the webhook, from 2,000 addresses", review, contract.WebhookPort, 2000),
	{
		name: "floods: connections that send nothing, from 10,000 addresses", ordinary: stream, keeps: addressesKeep,
		attack: func(ctx context.Context, v victim) (string, error) { return v.fromManyAddresses(ctx, nil, true) },
	},
	abandonedHandshakes("floods: handshakes begun and not continued, from 10,000 addresses", true),
	abandonedHandshakes("floods: handshakes begun by clients that go, from 10,000 addresses", false),
	frames("floods: frames of HTTP/2, from one address", 1, victim.tls),
	frames("floods: frames of HTTP/2, from 100 addresses", 100, victim.tls),
	frames("floods: frames of HTTP/2, of one workload", 1, func(v victim) (*tls.Config, error) { return v.holder("hostile") }),
	{
		name: "floods: streams opened and reset, from 100 addresses", ordinary: stream,
		attack: byTLS(func(ctx context.Context, v victim, config *tls.Config) (string, error) {
			return v.pour(ctx, 100, config, 100, contract.SecureDiscoveryPort, openedAndReset())
		}),
	},
	{
		name: "floods: requests at the webhook that do not wait for answers", ordinary: review,
		attack: byTLS(func(ctx context.Context, v victim, config *tls.Config) (string, error) {
			return v.pour(ctx, 200, config, 10, contract.WebhookPort, bytes.Repeat([]byte("GET /x HTTP/1.1\r\nHost: h\r\n\r\n"), 500))
		}),
	},
	{
		name: "floods: reviews that do not wait for answers", ordinary: review,
		attack: byTLS(func(ctx context.Context, v victim, config *tls.Config) (string, error) {
			return v.pour(ctx, 200, config, 10, contract.WebhookPort, bytes.Repeat([]byte("POST "+webhook.Path+" HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"), 500))
		}),
	},
	{
		name: "floods: a body that unpacks to 100 MiB", ordinary: review,
		attack: func(ctx context.Context, v victim) (string, error) {
			var bomb bytes.Buffer
			w := gzip.NewWriter(&bomb)
			if _, err := io.CopyN(w, zeros{}, 100<<20); err != nil {
				return "", err
			}
			w.Close()
			c, err := v.web()
			if err != nil {
				return "", err
			}
			return repeat(ctx, v.n(4, 20), func(ctx context.Context, _ int) error {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+v.at(contract.WebhookPort)+webhook.Path, bytes.NewReader(bomb.Bytes()))
				if err != nil {
					return err
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Content-Encoding", "gzip")
				return discard(c.Do(r))
			})
		},
	},
	{
		name: "floods: scrapes, from 10 addresses", ordinary: scrape,
		attack: func(ctx context.Context, v victim) (string, error) {
			return v.pour(ctx, 100, nil, 10, contract.MonitoringPort, bytes.Repeat([]byte("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"), 10))
		},
	},
	{
		name: "floods: headers without an end at the port for metrics", ordinary: scrape,
		attack: func(ctx context.Context, v victim) (string, error) {
			return v.pour(ctx, 100, nil, 10, contract.MonitoringPort, append([]byte("GET /metrics HTTP/1.1\r\n"), bytes.Repeat([]byte("X: x\r\n"), 10_000)...))
		},
	},
	{
		name: "floods: probes that do not wait for answers", agent: true, ordinary: probe,
		attack: func(ctx context.Context, v victim) (string, error) {
			v.Address = v.Pod
			return v.pour(ctx, 200, nil, 10, contract.ReadinessPort, bytes.Repeat([]byte("GET "+contract.ReadyPath+" HTTP/1.1\r\nHost: h\r\n\r\n"), 500))
		},
	},
	{
		name: "floods: metrics of a pod that are not read", agent: true, ordinary: probe,
		attack: func(ctx context.Context, v victim) (string, error) {
			v.Address = v.Pod
			return v.pour(ctx, 200, nil, 10, contract.StatusPort, bytes.Repeat([]byte("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"), 500))
		},
	},
	{
		name: "floods: headers without an end at a pod", agent: true, ordinary: probe,
		attack: func(ctx context.Context, v victim) (string, error) {
			v.Address = v.Pod
			return v.pour(ctx, 200, nil, 10, contract.StatusPort, append([]byte("GET / HTTP/1.1\r\n"), bytes.Repeat([]byte("X: x\r\n"), 10_000)...))
		},
	},
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func discard(answer *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// from connects to a port of the victim. Its calls use the given number of source addresses in turn.
func (v victim) from(ctx context.Context, addresses, port int) (net.Conn, error) {
	n := connected.Add(1) % int64(addresses)
	local := netip.AddrFrom4([4]byte{10, 250, byte(n >> 8), byte(n)})
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: local.AsSlice()}}).DialContext(ctx, "tcp", v.at(port))
	if err == nil {
		c.(*net.TCPConn).SetLinger(0) // close with a reset, so that no port stays in TIME_WAIT
	}
	return c, err
}

var connected atomic.Int64

// begunHandshakes makes a case in which the attacker sends the same ClientHello on every connection. The server
// must make a key and a signature for each, the attacker nothing.
func begunHandshakes(name string, ordinary func(*world) client, port, addresses int) attacked {
	return attacked{name: name, ordinary: ordinary, attack: func(ctx context.Context, v victim) (string, error) {
		hello, err := v.hello()
		if err != nil {
			return "", err
		}
		var answered atomic.Int64
		did, err := repeat(ctx, 400, func(ctx context.Context, _ int) error {
			c, err := v.from(ctx, addresses, port)
			if err != nil {
				return err
			}
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			if _, err := c.Write(hello); err != nil {
				return err
			}
			if _, err = c.Read(make([]byte, 1)); err == nil {
				answered.Add(1)
			}
			return err
		})
		return fmt.Sprintf("%s; %d handshakes were answered", did, answered.Load()), err
	}}
}

// hello returns a recorded ClientHello.
func (v victim) hello() ([]byte, error) {
	config, err := v.tls()
	if err != nil {
		return nil, err
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	near, far := net.Pipe()
	go tls.Client(near, config).Handshake()
	hello := make([]byte, 16<<10)
	n, err := far.Read(hello)
	return hello[:n], err
}

// addressesKeep is the bound for the memory that stays after an attack from 10,000 addresses: rate-limit entries
// for the addresses, and half a KiB that the Go runtime retains for each of 10,000 goroutines that have ended.
const addressesKeep = 16 << 20

// fromManyAddresses connects from 10,000 addresses, which is the limit of unfinished handshakes. Each connection
// sends the same message. If stay is set, the connection then stays open until the server closes it; otherwise the
// attacker closes it at once.
func (v victim) fromManyAddresses(ctx context.Context, message []byte, stay bool) (string, error) {
	return repeat(ctx, v.n(1000, 10_000), func(ctx context.Context, _ int) error {
		c, err := v.from(ctx, 10_000, contract.SecureDiscoveryPort)
		if err != nil {
			return err
		}
		if _, err := c.Write(message); err != nil || !stay {
			c.Close()
			return err
		}
		return untilClosed(ctx, c)
	})
}

// abandonedHandshakes makes a case in which the attacker starts handshakes and does not continue them.
func abandonedHandshakes(name string, stay bool) attacked {
	return attacked{name: name, ordinary: stream, keeps: addressesKeep, attack: func(ctx context.Context, v victim) (string, error) {
		hello, err := v.hello()
		if err != nil {
			return "", err
		}
		return v.fromManyAddresses(ctx, hello, stay)
	}}
}

// byTLS makes an attack of a function that needs a TLS configuration. The configuration has no client certificate.
func byTLS(attack func(context.Context, victim, *tls.Config) (string, error)) func(context.Context, victim) (string, error) {
	return func(ctx context.Context, v victim) (string, error) {
		config, err := v.tls()
		if err != nil {
			return "", err
		}
		return attack(ctx, v, config)
	}
}

// frames makes a case in which the attacker sends HTTP/2 frames that need no stream, and does not read the
// acknowledgements.
func frames(name string, addresses int, config func(victim) (*tls.Config, error)) attacked {
	return attacked{name: name, ordinary: stream, attack: func(ctx context.Context, v victim) (string, error) {
		with, err := config(v)
		if err != nil {
			return "", err
		}
		var b bytes.Buffer
		f := http2.NewFramer(&b, nil)
		for range 500 {
			f.WriteWindowUpdate(0, 1)
			f.WritePriority(1, http2.PriorityParam{StreamDep: 3})
			f.WriteRawFrame(0xbe, 0, 0, nil)
		}
		return v.pour(ctx, max(v.n(8, 32), addresses), with, addresses, contract.SecureDiscoveryPort, b.Bytes())
	}}
}

func openedAndReset() []byte {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	for id := uint32(1); id < 2000; id += 2 {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers(0), EndHeaders: true})
		f.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	return b.Bytes()
}

// pour repeatedly writes text over a number of connections, and reads until the server closes them. With a TLS
// configuration it connects by TLS, and first sends the HTTP/2 preface if the server negotiates HTTP/2.
func (v victim) pour(ctx context.Context, connections int, config *tls.Config, addresses, port int, text []byte) (string, error) {
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	var sent atomic.Int64
	did, err := repeat(ctx, connections, func(ctx context.Context, _ int) error {
		c, err := v.from(ctx, addresses, port)
		if err != nil {
			return err
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		if config != nil {
			secure := tls.Client(c, config)
			if err := secure.HandshakeContext(ctx); err != nil {
				return err
			}
			c = secure
			if secure.ConnectionState().NegotiatedProtocol == "h2" {
				if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
					return err
				}
				if err := http2.NewFramer(c, nil).WriteSettings(); err != nil {
					return err
				}
			}
		}
		go io.Copy(io.Discard, c)
		for {
			n, err := c.Write(text)
			sent.Add(int64(n))
			if err != nil {
				return err
			}
		}
	})
	return did + "; " + strconv.FormatInt(sent.Load()>>20, 10) + " MiB sent", err
}
