package ready

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"outrider.dev/test/ns"
)

const address = "10.9.0.2" // address of eth0 in the namespace

func namespace(t *testing.T) *ns.Namespace {
	t.Helper()
	n, other := ns.New(t), ns.New(t)
	ns.Connect(n, "eth0", []netip.Prefix{netip.MustParsePrefix(address + "/24")}, other, "eth1", []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")})
	return n
}

func listen(t *testing.T, in *ns.Namespace, at string) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	in.Do(func() { l, err = net.Listen("tcp", at) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// each calls f for each connection of a listener.
func each(l net.Listener, f func(net.Conn)) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f(c)
		}
	}()
}

func serve(t *testing.T, l net.Listener, h http.HandlerFunc) {
	t.Helper()
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}

func nft(t *testing.T, in *ns.Namespace, rules string) {
	t.Helper()
	in.Do(func() {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("nft: %v: %s", err, out)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// The waiting process reports each fault of a dependency, and the wait ends after the fault is repaired.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		target string
		// fault causes the fault, and returns a function that repairs it.
		fault func(t *testing.T, in *ns.Namespace) (mend func())
		why   string
	}{
		"refused": {"tcp://" + address + ":7000", func(t *testing.T, in *ns.Namespace) func() {
			return func() { each(listen(t, in, address+":7000"), func(c net.Conn) { io.Copy(io.Discard, c) }) }
		}, "connection refused"},
		"reset": {"http://" + address + ":7000/", func(t *testing.T, in *ns.Namespace) func() {
			l := listen(t, in, address+":7000")
			each(l, func(c net.Conn) {
				c.Read(make([]byte, 1)) // returns when the request has arrived
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
			})
			return func() {
				l.Close()
				serve(t, listen(t, in, address+":7000"), func(http.ResponseWriter, *http.Request) {})
			}
		}, "connection reset by peer"},
		"black hole": {"tcp://" + address + ":7000", func(t *testing.T, in *ns.Namespace) func() {
			each(listen(t, in, address+":7000"), func(c net.Conn) { io.Copy(io.Discard, c) })
			nft(t, in, "table inet hole { chain in { type filter hook input priority 0; tcp dport 7000 drop; }; }\n")
			return func() { nft(t, in, "delete table inet hole\n") }
		}, "no answer within"},
		"slow": {"http://" + address + ":7000/health", func(t *testing.T, in *ns.Namespace) func() {
			pause := make(chan struct{})
			serve(t, listen(t, in, address+":7000"), func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-pause:
					select { // answers later than the time limit of the first attempt
					case <-time.After(1200 * time.Millisecond):
					case <-r.Context().Done():
					}
				case <-r.Context().Done():
				}
			})
			return func() { close(pause) }
		}, "no answer within"},
		"half-open": {"grpc://" + address + ":7000", func(t *testing.T, in *ns.Namespace) func() {
			l := listen(t, in, address+":7000")
			each(l, func(c net.Conn) { io.Copy(io.Discard, c) })
			return func() {
				l.Close()
				s := grpc.NewServer()
				healthpb.RegisterHealthServer(s, health.NewServer())
				go s.Serve(listen(t, in, address+":7000"))
				t.Cleanup(s.Stop)
			}
		}, "no answer within"},
		"not serving": {"grpc://" + address + ":7000/shop.Cart", func(t *testing.T, in *ns.Namespace) func() {
			s, h := grpc.NewServer(), health.NewServer()
			h.SetServingStatus("shop.Cart", healthpb.HealthCheckResponse_NOT_SERVING)
			healthpb.RegisterHealthServer(s, h)
			go s.Serve(listen(t, in, address+":7000"))
			t.Cleanup(s.Stop)
			return func() { h.SetServingStatus("shop.Cart", healthpb.HealthCheckResponse_SERVING) }
		}, "NOT_SERVING"},
		"an error": {"http://" + address + ":7000/health?token=secret", func(t *testing.T, in *ns.Namespace) func() {
			var ok atomic.Bool
			serve(t, listen(t, in, address+":7000"), func(w http.ResponseWriter, r *http.Request) {
				if !ok.Load() || r.URL.RawQuery != "token=secret" {
					w.WriteHeader(http.StatusBadGateway)
				}
			})
			return func() { ok.Store(true) }
		}, "/health (status 502)"},
		"no name server": {"tcp://db.shop:7000", func(t *testing.T, in *ns.Namespace) func() {
			each(listen(t, in, address+":7000"), func(c net.Conn) { io.Copy(io.Discard, c) })
			return func() { names(t, in, nil) }
		}, "refused"},
		"a silent name server": {"tcp://db.shop:7000", func(t *testing.T, in *ns.Namespace) func() {
			each(listen(t, in, address+":7000"), func(c net.Conn) { io.Copy(io.Discard, c) })
			var mended atomic.Bool
			names(t, in, func() (dnsmessage.RCode, bool) { return dnsmessage.RCodeSuccess, mended.Load() })
			return func() { mended.Store(true) }
		}, "no answer within"},
		"a name that comes later": {"tcp://db.shop:7000", func(t *testing.T, in *ns.Namespace) func() {
			each(listen(t, in, address+":7000"), func(c net.Conn) { io.Copy(io.Discard, c) })
			var mended atomic.Bool
			names(t, in, func() (dnsmessage.RCode, bool) {
				if mended.Load() {
					return dnsmessage.RCodeSuccess, true
				}
				return dnsmessage.RCodeNameError, true
			})
			return func() { mended.Store(true) }
		}, "no such host"},
		"a proxy in between": {"tcp://10.9.0.1:7000", func(t *testing.T, in *ns.Namespace) func() {
			// The proxy accepts the connection, and closes it when its own connection is refused, as Envoy does.
			nft(t, in, "table ip capture { chain out { type nat hook output priority -100; oifname eth0 tcp dport 7000 redirect to :15001; }; }\n")
			var mended atomic.Bool
			each(listen(t, in, ":15001"), func(c net.Conn) {
				if mended.Load() {
					io.Copy(io.Discard, c)
				}
				c.Close()
			})
			return func() { mended.Store(true) }
		}, "accepted and closed at once"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := namespace(t)
			mend := tt.fault(t, in)
			p := begin(t, in, wait{On: []string{tt.target}, DNS: nameServer})
			p.until("waiting", tt.why)
			mend()
			p.until("ok")
			if strings.Contains(p.Log(), "secret") {
				t.Errorf("the log has a secret:\n%s", p.Log())
			}
		})
	}
}

// A dependency that was available before must still be available when the last one becomes available; otherwise the
// process waits for it again.
func TestFlapping(t *testing.T) {
	t.Parallel()
	in := namespace(t)
	var up atomic.Bool
	up.Store(true)
	serve(t, listen(t, in, address+":7000"), func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	p := begin(t, in, wait{On: []string{"http://" + address + ":7000/", "tcp://" + address + ":7001"}})
	p.until("waiting", `for="tcp://`+address+`:7001 (connection refused)"`) // only the second dependency is missing
	up.Store(false)
	each(listen(t, in, address+":7001"), func(c net.Conn) { io.Copy(io.Discard, c) })
	p.until("waiting", `for="http://`+address+`:7000/ (status 503)"`)
	up.Store(true)
	p.until("ok")
}

const nameServer = "127.0.0.1:5300"

// names starts a name server. It answers queries for addresses with the constant [address], or with the error code
// that the function answer returns. If the second result of the function is false, it does not answer.
func names(t *testing.T, in *ns.Namespace, answer func() (code dnsmessage.RCode, ok bool)) {
	t.Helper()
	var c net.PacketConn
	var err error
	in.Do(func() { c, err = net.ListenPacket("udp", nameServer) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		raw := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(raw)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			code, ok := dnsmessage.RCodeSuccess, true
			if answer != nil {
				code, ok = answer()
			}
			if m.Unpack(raw[:n]) != nil || len(m.Questions) != 1 || !ok {
				continue
			}
			m.Response, m.RCode, m.Additionals = true, code, nil
			if q := m.Questions[0]; code == dnsmessage.RCodeSuccess && q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(address).As4()},
				}}
			}
			if out, err := m.Pack(); err == nil {
				c.WriteTo(out, from)
			}
		}
	}()
}
