package standby

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// hello is a TLS record as long as a ClientHello.
var hello = append([]byte{handshake, 3, 1, 1, 0x40}, bytes.Repeat([]byte("h"), 0x140)...)

// A silentWorld is a Silent between a proxy and an application.
type silentWorld struct {
	*Silent
	t       *testing.T
	app     *net.TCPListener
	proxy   *net.TCPListener // inspects what comes back
	clients int
}

func newSilentWorld(t *testing.T, change func(*SilentOptions)) *silentWorld {
	t.Helper()
	ns.RequireRoot(t)
	if err := setUpNetwork(); err != nil {
		t.Fatal(err)
	}
	w := &silentWorld{t: t, app: listenTCP(t), proxy: listenTCP(t)}
	o := SilentOptions{Port: 15007, Inspect: addrPort(w.proxy.Addr()), Reject: []uint16{1}, Greeting: time.Hour}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if w.Silent, err = ListenSilent(ctx, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		w.Wait()
	})
	return w
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// from is the address of the nth client.
func from(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 40000)
}

// open connects as the proxy does for a client. Reads fail after a minute.
func (w *silentWorld) open(from, to netip.AddrPort) *net.TCPConn {
	w.t.Helper()
	c := dial(w.t, w.listener.Addr().String())
	c.SetDeadline(time.Now().Add(time.Minute))
	c.Write(header(from, to))
	return c
}

// silent connects a new client, and returns the application's end too.
func (w *silentWorld) silent() (client, app *net.TCPConn) {
	w.t.Helper()
	w.clients++
	before := w.Counts().Waiting
	client = w.open(from(w.clients), addrPort(w.app.Addr()))
	app = acceptOne(w.t, w.app)
	process.Eventually(w.t, "it waits", func() bool { return w.Counts().Waiting == before+1 })
	return client, app
}

func acceptOne(t *testing.T, l *net.TCPListener) *net.TCPConn {
	t.Helper()
	l.SetDeadline(time.Now().Add(time.Minute))
	c, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { c.Close() })
	return c
}

// exchange sends bytes one way, and checks that they arrive.
func exchange(t *testing.T, a, b *net.TCPConn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.WriteString(a, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b, got); err != nil || string(got) != text {
		t.Fatalf("%q, %v; want %q", got, err, text)
	}
}

// inspected takes what went back to the proxy, and answers it.
func (w *silentWorld) inspected(client *net.TCPConn) {
	w.t.Helper()
	up := acceptOne(w.t, w.proxy)
	source, to, err := readHeader(up)
	if err != nil || source != from(w.clients) || to != addrPort(w.app.Addr()) {
		w.t.Fatalf("header: %v, %v, %v", source, to, err)
	}
	got := make([]byte, len(hello))
	if _, err := io.ReadFull(up, got); err != nil || !bytes.Equal(got, hello) {
		w.t.Fatalf("%q, %v", got, err)
	}
	exchange(w.t, up, client, "ServerHello")
	exchange(w.t, client, up, "Finished")
	up.Close()
}

// holding reports whether a greeting is held back. The pair is counted as relayed before.
func holding() bool {
	stacks := make([]byte, 1<<20)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("afterGreeting"))
}

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

func endOf(c *net.TCPConn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

// Whichever side sends first decides.
func TestWhicheverSideSendsFirst(t *testing.T) {
	w := newSilentWorld(t, nil)
	run := func(name string, f func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			w.t = t
			process.Eventually(t, "the connections of the case before have ended", func() bool { return w.Counts() == SilentCounts{} })
			f(t)
		})
	}
	for name, text := range map[string]string{ // any order: independent
		"bytes": "PING\r\n", "one byte": "G", "nearly TLS": "\x16\x04\x01\x00\x10", "a record that is too long": "\x16\x03\x01\xff\xff",
	} {
		run("the client: "+name, func(t *testing.T) {
			client, app := w.silent()
			exchange(t, client, app, text)
			exchange(t, app, client, "PONG")
			client.CloseWrite()
			if err := endOf(app); err != io.EOF {
				t.Error(err)
			}
			exchange(t, app, client, "and the rest")
			app.Close()
			if err := endOf(client); err != io.EOF {
				t.Error(err)
			}
		})
	}
	for _, ends := range [][]int{nil, {1}, {3}, {5}, {1, 5, 300}} {
		run(fmt.Sprint("the client: a ClientHello in pieces that end at ", ends), func(t *testing.T) {
			client, app := w.silent()
			begin := 0
			for _, end := range ends {
				client.Write(hello[begin:end])
				begin = end
				process.Eventually(t, "the relay has begun", func() bool { return w.Counts().Relaying == 1 })
			}
			client.Write(hello[begin:])
			w.inspected(client)
			if err := endOf(app); err != io.EOF {
				t.Errorf("the application's connection: %v", err)
			}
			client.Close()
			process.Eventually(t, "all has ended", func() bool { return w.Counts().Relaying == 0 })
		})
	}
	run("the application, and then a ClientHello", func(t *testing.T) {
		client, app := w.silent()
		io.WriteString(app, "greeting")
		process.Eventually(t, "the greeting is held", holding)
		client.Write(hello)
		w.inspected(client)
		client.Close()
	})
	run("the application, and then plain text", func(t *testing.T) {
		client, app := w.silent()
		io.WriteString(app, "greeting")
		process.Eventually(t, "the greeting is held", holding)
		exchange(t, client, app, "HELO")
		exchange(t, app, client, "")
		w.clients-- // the same source again: nothing is held, though Greeting is an hour
		client, app = w.silent()
		exchange(t, app, client, "greeting")
	})
	run("the client ends", func(t *testing.T) {
		client, app := w.silent()
		client.CloseWrite()
		if err := endOf(app); err != io.EOF {
			t.Error(err)
		}
		exchange(t, app, client, "the answer")
	})
	run("the client resets", func(t *testing.T) {
		client, app := w.silent()
		reset(client)
		if err := endOf(app); !isReset(err) {
			t.Error(err)
		}
	})
	run("the application ends", func(t *testing.T) {
		client, app := w.silent()
		app.Close()
		if err := endOf(client); err != io.EOF {
			t.Error(err)
		}
	})
	run("the application resets", func(t *testing.T) {
		client, app := w.silent()
		reset(app)
		if err := endOf(client); !isReset(err) {
			t.Error(err)
		}
	})
	run("no application", func(t *testing.T) {
		if err := endOf(w.open(from(1), netip.MustParseAddrPort("127.0.0.1:9"))); !isReset(err) {
			t.Error(err)
		}
	})
	w.t = t
	process.Eventually(t, "all has ended", func() bool { return w.Counts() == SilentCounts{} })
}

// A greeting goes to a client that stays silent, a while later.
func TestGreetingOfAnUnknownClient(t *testing.T) {
	w := newSilentWorld(t, func(o *SilentOptions) { o.Greeting = time.Millisecond })
	client, app := w.silent()
	exchange(t, app, client, "greeting")
	exchange(t, client, app, "HELO")
}

func TestConnectionsThatTheRelayRefuses(t *testing.T) {
	w := newSilentWorld(t, nil)
	app := addrPort(w.app.Addr())
	for name, to := range map[string]netip.AddrPort{ // any order: independent
		"another machine": netip.MustParseAddrPort("10.96.0.10:80"), "a port of the proxy": netip.AddrPortFrom(app.Addr(), 1),
	} {
		if err := endOf(w.open(from(1), to)); !isReset(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := dial(t, w.listener.Addr().String())
	io.WriteString(c, strings.Repeat("x", 16))
	if err := endOf(c); !isReset(err) {
		t.Errorf("no header: %v", err)
	}
	// A proxy sends back what was handed to it: some times it may have been too slow to look at it,
	// then it would go round for ever.
	w.clients = 7
	for range handBacks {
		client := w.open(from(7), app)
		acceptOne(t, w.app)
		client.Write(hello)
		acceptOne(t, w.proxy)
	}
	if err := endOf(w.open(from(7), app)); !isReset(err) {
		t.Errorf("a loop: %v", err)
	}
}

// Beyond Max the longest silent connection is reset, and one source has half of the room.
func TestTooManySilentConnections(t *testing.T) {
	const room = 8
	w := newSilentWorld(t, func(o *SilentOptions) { o.Max = room })
	oldest, _ := w.silent()
	second, app := w.silent()
	var same []*net.TCPConn
	for i := range room/2 + 1 {
		same = append(same, w.open(from(1000), addrPort(w.app.Addr())))
		acceptOne(t, w.app)
		process.Eventually(t, "it waits", func() bool { return w.Counts().Waiting == 2+min(i+1, room/2) })
	}
	if err := endOf(same[0]); !isReset(err) {
		t.Errorf("the first of too many of one source: %v", err)
	}
	w.silent()
	w.silent()
	w.open(from(2000), addrPort(w.app.Addr()))
	if err := endOf(oldest); !isReset(err) {
		t.Errorf("the longest silent: %v", err)
	}
	exchange(t, second, app, "PING")
	process.Eventually(t, "all the room is used, and two were refused", func() bool {
		c := w.Counts()
		return c.Waiting+c.Relaying == room && c.Refused == 2
	})
}

func FuzzReadHeader(f *testing.F) {
	f.Add(header(from(1), from(2)))
	f.Add(header(netip.MustParseAddrPort("[fd00::2]:1"), netip.MustParseAddrPort("[fd00::1]:443")))
	f.Add([]byte(signature + "\x20\x00\x00\x00"))
	f.Add([]byte(signature + "\x21\x11\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		from, to, err := readHeader(r)
		if err != nil {
			return
		}
		if !from.Addr().IsValid() || !to.Addr().IsValid() {
			t.Errorf("%v, %v", from, to)
		}
		if read := len(b) - r.Len(); read > 16+maxHeader {
			t.Errorf("%d bytes were read", read)
		}
	})
}
