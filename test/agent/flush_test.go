package agent

import (
	"context"
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

// flushed is what an application writes just before it ends. It fits into the buffers of the
// kernel and Envoy, and not into those of a slow receiver.
const flushed = 1_500_000

// An application that has written everything ends, with its receiver still reading slowly: the
// proxy passes everything on before it leaves.
func TestStopFlushes(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Service("h1", "10.96.0.11", "h1", "http 8080")
	w.Service("h2", "10.96.0.12", "h2", "http2 8080")
	w.Serve()

	// begin starts a pod whose app has ended when its proxy gets SIGTERM.
	pods := 0
	begin := func(name string) *harness.Agent {
		p := w.Pod(name)
		pods++
		w.Known(2, pods)
		p.Env = []string{"OUTRIDER_ORDERED_STOP=true"}
		a := p.Agent()
		a.Ready()
		return a
	}
	end := func(t *testing.T, a *harness.Agent) {
		a.Signal(syscall.SIGTERM)
		harness.Eventually(t, "the agent drains", func() bool { return strings.Contains(a.Log(), `"state":"draining"`) })
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
		responses int // under way at a time
		size      int // of each
	}{
		"tcp": {1, flushed},
		"h1":  {1, flushed},
		// Each fits into its stream's window, and not all into the connection's: what waits for
		// that is in no queue of a socket.
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

	w.Run("a client that does not read", func(t *testing.T) {
		a := begin("still")
		app, wrote := serve(a, flushed)
		res, err := slowClient(outsider, false).Get("http://" + a.Pod.Address.String() + ":8080/")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		app.Close()
		end(t, a)
		left(t, a)
		if !strings.Contains(a.Log(), "not passed on, since the receivers do not read: ") {
			t.Errorf("it is not said in\n%s", a.Log())
		}
	})
}

// Callers that go on, with new connections and with old ones, do not keep a proxy whose app has ended.
func TestStopFlushesBesideCallers(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Service("h1", "10.96.0.11", "h1", "http 8080")
	w.Serve()
	p := w.Pod("h1")
	p.Env = []string{"OUTRIDER_ORDERED_STOP=true"}
	w.Known(1, 1)
	a := p.Agent()
	a.Ready()
	outsider := w.Machine("outsider")
	url := "http://" + p.Address.String() + ":8080/"
	client := func(keep bool) func() error {
		c := slowClient(outsider, false)
		c.Timeout = 2 * time.Second // one that comes after the proxy has left may be parked
		c.Transport.(*http.Transport).DisableKeepAlives = !keep
		return func() error {
			if res, err := c.Get(url); err == nil {
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
			return nil
		}
	}
	first, second := harness.NewLoad(16, 0, client(false)), harness.NewLoad(16, 0, client(true))
	begun := time.Now()
	a.Signal(syscall.SIGTERM)
	status := a.Exit()
	took := time.Since(begun)
	made, _, _ := first.Stop()
	more, _, _ := second.Stop()
	if status != 0 || why(a) != "all applications have ended" || strings.Contains(p.Message(), "interrupted") {
		t.Errorf("status %d, %q, %q", status, why(a), p.Message())
	}
	t.Logf("left after %s, with %d and %d calls meanwhile", took.Round(time.Millisecond), made, more)
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

// slowClient takes little at a time, by HTTP/1.1 or HTTP/2.
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
