package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
)

// flushed is the number of bytes that an application writes just before it exits. They fit into the buffers of the
// kernel and of Envoy, but not into those of the slow receiver.
const flushed = 1_500_000

// When an application exits after writing everything while its receiver still reads slowly, the
// proxy delivers all of it before it exits.
func TestStopFlushes(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Service("h1", "10.96.0.11", "h1", "http 8080")
	w.Service("h2", "10.96.0.12", "h2", "http2 8080")
	w.Serve()

	// begin starts a pod. Its app exits before the proxy gets SIGTERM.
	pods := 0
	begin := func(name string, env ...string) *harness.Agent {
		p := w.Pod(name)
		pods++
		w.Known(2, pods)
		p.Env = append(env, "OUTRIDER_ORDERED_STOP=true")
		a := p.Agent()
		a.Ready()
		return a
	}
	end := func(t *testing.T, a *harness.Agent) {
		a.Signal(syscall.SIGTERM)
		a.Logs(draining)
	}
	left := func(t *testing.T, a *harness.Agent) {
		if status := a.Exit(); status != 0 || why(a) != "all applications have ended" {
			t.Errorf("status %d, %q", status, why(a))
		}
	}
	outsider := w.Machine("outsider")
	// serve answers each request with size bytes.
	serve := func(a *harness.Agent, size int) (s *http.Server, wrote chan error) {
		l := harness.Listen(w, a.Pod.Namespace, harness.AppUser, ":8080")
		wrote = make(chan error, 1)
		var protocols http.Protocols
		protocols.SetHTTP1(true)
		protocols.SetUnencryptedHTTP2(true)
		s = &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			_, err := w.Write(make([]byte, size))
			if err == nil {
				err = http.NewResponseController(w).Flush()
			}
			wrote <- err
		})}
		go s.Serve(l)
		return s, wrote
	}

	for name, tt := range map[string]struct {
		responses int // number of simultaneous responses
		size      int // size of each response in bytes
	}{
		"tcp": {1, flushed},
		"h1":  {1, flushed},
		// Each response fits into the window of its HTTP/2 stream, but all responses together do not fit into the
		// window of the connection. The bytes that wait for this window are in Envoy, where no socket queue shows
		// them.
		"h2": {20, 10_000},
	} {
		w.Run("a response by "+name, func(t *testing.T) {
			a := begin(name)
			app, wrote := serve(a, tt.size)
			client := slowClient(outsider, name == "h2")
			var all []io.Reader
			for len(all) < tt.responses {
				res, err := client.Get("http://" + a.Pod.Address.String() + ":8080/")
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				all = append(all, res.Body)
				if err := <-wrote; err != nil {
					t.Fatal(err)
				}
			}
			app.Close()
			end(t, a)
			size := tt.responses * tt.size
			if n, err := slowly(io.MultiReader(all...), size); n != size || err != nil {
				t.Errorf("%d of %d bytes, %v", n, size, err)
			}
			left(t, a)
		})
	}

	w.Run("an upload", func(t *testing.T) {
		a := begin("out")
		l := harness.Listen(w, outsider.Namespace, harness.AppUser, ":9000")
		conn, err := harness.Dialer(a.Pod.Namespace, harness.AppUser)(t.Context(), "tcp", outsider.Address.String()+":9000")
		if err != nil {
			t.Fatal(err)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		peer.(*net.TCPConn).SetReadBuffer(32 << 10)
		if _, err := conn.Write(make([]byte, flushed)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		end(t, a)
		if n, err := slowly(peer, flushed); n != flushed || err != nil {
			t.Errorf("%d of %d bytes, %v", n, flushed, err)
		}
		left(t, a)
	})

	// endUnread ends the app and stops the proxy before the client has read the answer, and returns the answer's body.
	endUnread := func(t *testing.T, a *harness.Agent) io.Reader {
		t.Helper()
		app, wrote := serve(a, flushed)
		res, err := slowClient(outsider, false).Get("http://" + a.Pod.Address.String() + ":8080/")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		app.Close()
		end(t, a)
		return res.Body
	}
	w.Run("a client that does not read", func(t *testing.T) {
		a := begin("still")
		endUnread(t, a)
		left(t, a)
		if !strings.Contains(a.Log(), "not passed on, since the receivers do not read: ") {
			t.Errorf("it is not said in\n%s", a.Log())
		}
	})

	// The proxy must not serve new callers while it delivers the rest: it would wait for their bytes too, for the
	// whole drain time.
	w.Run("new connections are refused meanwhile", func(t *testing.T) {
		a := begin("refuses", `PROXY_CONFIG={"drainDuration": "1h"}`)
		answer := endUnread(t, a)
		address := a.Pod.Address.String() + ":8080"
		refused := func() bool {
			c, err := harness.Dialer(outsider.Namespace, 0)(t.Context(), "tcp", address)
			if err == nil {
				c.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		// Until a new connection is refused, the receiver reads slowly, and at most half of the answer. The
		// other half exceeds the receiver's buffers, so the proxy must still run.
		half, closed := make(chan error, 1), make(chan struct{})
		go func() {
			for range 200 {
				if _, err := io.CopyN(io.Discard, answer, flushed/400); err != nil {
					half <- err
					return
				}
				select {
				case <-closed:
				case <-time.After(50 * time.Millisecond):
				}
			}
			half <- nil
		}()
		for !refused() {
			select {
			case err := <-half:
				t.Fatalf("none was refused until half was read, %v", err)
			case <-time.After(50 * time.Millisecond):
			}
		}
		close(closed)
		if err := <-half; err != nil {
			t.Fatal(err)
		}
		if rest, err := io.Copy(io.Discard, answer); rest != flushed/2 || err != nil {
			t.Errorf("%d of %d bytes, %v; want all, after a new connection was refused", flushed/2+rest, flushed, err)
		}
		left(t, a)
	})
}

// slowly reads size bytes in a hundred pieces, with a pause after each.
func slowly(r io.Reader, size int) (n int, err error) {
	piece := make([]byte, size/100)
	for {
		some, err := r.Read(piece)
		n += some
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// slowClient makes a client with small receive buffers, for HTTP/1.1 or HTTP/2.
func slowClient(p *harness.Pod, h2 bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	dial := harness.Dialer(p.Namespace, harness.AppUser)
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		Protocols: &protocols, ReadBufferSize: 4 << 10,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 64 << 10},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err == nil {
				err = c.(*net.TCPConn).SetReadBuffer(32 << 10)
			}
			return c, err
		},
	}}
}
