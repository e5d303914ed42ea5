package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/internal/base/wire"
	"outrider.dev/test/port"
)

// bound is the time limit for events that must come; no test takes that long.
const bound = time.Minute

// A rig is a relay between an Envoy and a control plane that the test plays.
type rig struct {
	*testing.T
	relay   *Relay
	states  chan State
	streams chan *stream // streams that the control plane receives
	address string
	plane   *http.Server
	port    net.Listener // of the control plane
	refuse  bool
	refused chan struct{}
}

// A stream is one end of a discovery stream: Envoy's end or the control plane's end.
type stream struct {
	t        *testing.T
	messages chan []byte // received
	send     func([]byte)
	end      func()
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, states: make(chan State, 100), streams: make(chan *stream), refused: make(chan struct{}, 1000)}
	l, err := net.Listen("tcp", port.Hold(t).String()) // the control plane listens at this address again later
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	r.serve(l)
	r.start(filepath.Join(t.TempDir(), "accepted"))
	t.Cleanup(r.down)
	return r
}

// start starts the relay, as an agent does.
func (r *rig) start(file string) (stop func()) {
	r.Helper()
	socket := filepath.Join(r.TempDir(), "ads")
	relay, err := Listen(Options{
		Socket: socket, Address: r.address, Store: file, Key: "proxy",
		Changed: func(s State) { r.states <- s }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.Fatal(err)
	}
	r.relay = relay
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := relay.Serve(ctx); !errors.Is(err, context.Canceled) {
			r.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	r.Cleanup(stop)
	return stop
}

// serve starts the control plane.
func (r *rig) serve(l net.Listener) {
	r.port = l
	r.plane = &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.refuse {
			w.Header().Set("Grpc-Status", "7")
			select {
			case r.refused <- struct{}{}:
			default:
			}
			return
		}
		flush := http.NewResponseController(w).Flush
		flush()
		ended := make(chan struct{})
		s := &stream{t: r.T, messages: make(chan []byte, 100), end: sync.OnceFunc(func() { close(ended) }), send: func(m []byte) {
			w.Write(wire.Frame(m))
			flush()
		}}
		r.streams <- s
		go s.receive(q.Body)
		select {
		case <-ended:
		case <-q.Context().Done():
		}
	})}
	r.plane.Protocols.SetUnencryptedHTTP2(true)
	go r.plane.Serve(l)
}

// down ends the control plane and its connections.
func (r *rig) down() {
	r.port.Close() // the server may not have started to serve
	r.plane.Close()
}

// again restarts the control plane at the same address.
func (r *rig) again() {
	r.Helper()
	l, err := net.Listen("tcp", r.address)
	if err != nil {
		r.Fatal(err)
	}
	r.serve(l)
}

func (s *stream) receive(from io.Reader) {
	defer close(s.messages)
	for {
		m, err := wire.ReadMessage(from, 1<<20)
		if err != nil {
			return
		}
		s.messages <- m
	}
}

// next returns the next message; nil at the end of the stream.
func (s *stream) next() []byte {
	s.t.Helper()
	select {
	case m := <-s.messages:
		return m
	case <-time.After(bound):
		s.t.Fatal("no message")
	}
	return nil
}

// envoy opens a stream as Envoy does.
func (r *rig) envoy() *stream {
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.relay.o.Socket)
	}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	body, requests := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{t: r.T, messages: make(chan []byte, 100), send: func(m []byte) { requests.Write(wire.Frame(m)) }, end: func() {
		cancel()
		requests.Close()
		transport.CloseIdleConnections()
	}}
	r.Cleanup(s.end)
	go func() {
		q, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://plane/x", body)
		res, err := transport.RoundTrip(q)
		if err != nil {
			body.CloseWithError(err)
			close(s.messages)
			return
		}
		defer body.CloseWithError(io.EOF)
		s.receive(res.Body)
	}()
	return s
}

func (r *rig) stream() *stream {
	r.Helper()
	select {
	case s := <-r.streams:
		return s
	case <-time.After(bound):
		r.Fatal("no stream")
	}
	return nil
}

// state waits until the field Connected of the relay's state has the given value, and returns the state.
func (r *rig) state(connected bool) State {
	r.Helper()
	for {
		select {
		case s := <-r.states:
			if s.Connected == connected {
				return s
			}
		case <-time.After(bound):
			r.Fatal("no change of state")
		}
	}
}

// got formats a response: "Cluster a@1 b@2 #nonce".
func got(t *testing.T, m []byte) string {
	t.Helper()
	p, err := parseResponse(m)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{p.typeURL[strings.LastIndexByte(p.typeURL, '.')+1:]}
	for _, r := range p.resources {
		out = append(out, r.name+"@"+r.version)
	}
	return strings.Join(append(out, "#"+p.nonce), " ")
}

func (s *stream) want(text string) {
	s.t.Helper()
	m := s.next()
	if m == nil {
		s.t.Fatalf("the stream has ended; want %s", text)
	}
	if is := got(s.t, m); is != text {
		s.t.Errorf("%s, want %s", is, text)
	}
}

var away = wire.Away{
	Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	HTTP:     []byte{8, 1}, TCP: []byte{8, 2}, Refused: []byte{8, 3},
	Grace: time.Millisecond,
}

// begin opens a first stream on which Envoy gets a cluster a, a listener l, and an endpoint e.
func (r *rig) begin() (envoy, plane *stream) {
	r.Helper()
	envoy = r.envoy()
	envoy.send(requestOf(clusterType, "", nil, nil))
	plane = r.stream()
	if q, err := parseRequest(plane.next()); err != nil || q.typeURL != clusterType {
		r.Fatalf("%+v, %v", q, err)
	}
	plane.send(wire.AppendField(response{typeURL: clusterType, nonce: "1", resources: []resource{resourceOf("a", "1")}}.marshal(), wire.AwayField, away.Marshal()))
	envoy.want("Cluster a@1 #1")
	r.state(true)
	for n, typeURL := range []string{listenerType, endpointType} {
		nonce := fmt.Sprint(n + 2)
		name := string("le"[n])
		envoy.send(requestOf(typeURL, "", []string{name}, nil))
		plane.send(response{typeURL: typeURL, nonce: nonce, resources: []resource{resourceOf(name, "1")}}.marshal())
		if m := envoy.next(); m == nil {
			r.Fatal("the stream has ended")
		}
		envoy.send(requestOf(typeURL, nonce, nil, nil))
	}
	envoy.send(requestOf(clusterType, "1", nil, nil))
	for range 5 { // after all these requests, everything is stored
		plane.next()
	}
	return envoy, plane
}

// The relay keeps resources that Envoy accepts, and none that Envoy rejects.
func TestAccepted(t *testing.T) {
	r := newRig(t)
	envoy, plane := r.begin()
	plane.send(response{typeURL: clusterType, nonce: "4", resources: []resource{resourceOf("b", "1")}}.marshal())
	plane.send(response{typeURL: clusterType, nonce: "5", resources: []resource{resourceOf("c", "1")}}.marshal())
	envoy.want("Cluster b@1 #4")
	envoy.want("Cluster c@1 #5")
	envoy.send(wire.AppendField(requestOf(clusterType, "4", nil, nil), 7, "an error"))
	envoy.send(requestOf(clusterType, "5", nil, nil))
	plane.next()
	plane.next()
	if got := has(t, r.relay.store, clusterType); got != "a@1 c@1" {
		t.Errorf("kept: %s", got)
	}
	if n, _ := r.relay.Kept(); n != 4 {
		t.Errorf("%d resources", n)
	}
}

// The relay reads only the newest stream of a connection: it keeps no late responses of an earlier
// stream, and the end of that stream does not end the connection. An ACK counts only for its own
// type.
func TestEarlierStream(t *testing.T) {
	r := newRig(t)
	tee := newTee(r.relay)
	tee.requests.read(make([]byte, prefaceSize))
	read := func(d *direction, p []byte) error { _, err := d.read(p); return err }
	request := func(stream uint32, m []byte) error {
		return read(tee.requests, frame(dataFrame, 0, stream, wire.Frame(m)))
	}
	response := func(stream uint32, nonce, name string) error {
		m := response{typeURL: clusterType, nonce: nonce, resources: []resource{resourceOf(name, "1")}}.marshal()
		return read(tee.responses, frame(dataFrame, 0, stream, wire.Frame(m)))
	}
	err := errors.Join(
		request(1, requestOf(clusterType, "", nil, nil)), request(3, requestOf(clusterType, "", nil, nil)),
		response(1, "1", "before"), response(3, "2", "b"), response(1, "3", "after"), read(tee.responses, frame(resetFrame, 0, 1, make([]byte, 4))),
		request(3, requestOf(clusterType, "1", nil, nil)), request(3, requestOf(clusterType, "2", nil, nil)), request(3, requestOf(clusterType, "3", nil, nil)),
		response(3, "4", "c"), request(3, requestOf(listenerType, "4", nil, nil)))
	if got := has(t, r.relay.store, clusterType); got != "b@1" || err != nil || tee.responses.err != nil {
		t.Errorf("%s is kept, %v, %v; want b@1", got, err, tee.responses.err)
	}
}

// While the control plane is unreachable, the agent responds with stored resources and stand-ins, but not with
// resources that Envoy already has.
func TestAway(t *testing.T) {
	r := newRig(t)
	envoy, _ := r.begin()
	r.down()
	if m := envoy.next(); m != nil {
		t.Errorf("%s; want the end", got(t, m))
	}
	r.state(false)

	t.Log("the same Envoy")
	envoy = r.envoy()
	envoy.send(requestOf(clusterType, "", []string{"*", "http|10.96.0.9:80", "other"}, map[string]string{"a": "1", "other": "7"}))
	envoy.want("Cluster http|10.96.0.9:80@away #local-1")
	envoy.send(requestOf(clusterType, "local-1", nil, nil))
	envoy.send(requestOf(endpointType, "", []string{"e", "f", "g"}, map[string]string{"e": "1", "f": "1"}))
	envoy.want("ClusterLoadAssignment e@1 g@away #local-2") // f is not stored: Envoy keeps its version
	envoy.send(requestOf(hostType, "", []string{"routed/x"}, nil))
	envoy.want("VirtualHost routed/x@away #local-3")
	envoy.end()

	t.Log("another one")
	envoy = r.envoy()
	envoy.send(requestOf(clusterType, "", nil, nil))
	envoy.want("Cluster a@1 #local-1")
	envoy.send(requestOf(listenerType, "", nil, nil))
	envoy.want("Listener l@1 #local-2")
	envoy.send(requestOf(hostType, "", nil, nil))
	envoy.want("VirtualHost #local-3")
	if got := has(t, r.relay.store, clusterType); got != "a@1" {
		t.Errorf("kept: %s", got)
	}

	t.Log("the control plane is back")
	r.again()
	for m := envoy.next(); m != nil; m = envoy.next() {
		t.Errorf("%s; want the end", got(t, m))
	}
	envoy = r.envoy()
	envoy.send(requestOf(clusterType, "", nil, map[string]string{"a": "1"}))
	plane := r.stream()
	if q, err := parseRequest(plane.next()); err != nil || q.initial["a"] != "1" {
		t.Errorf("%+v, %v", q, err)
	}
	plane.send(response{typeURL: clusterType, nonce: "9"}.marshal())
	envoy.want("Cluster #9")
	r.state(true)
}

// An Envoy without resources gets nothing while the store does not contain all that it needs: it
// waits for the control plane.
func TestNothingIsKept(t *testing.T) {
	r := newRig(t)
	envoy, _ := r.begin()
	r.relay.store.forget(listenerType, []string{"l"})
	r.down()
	envoy.next()
	r.state(false)
	envoy = r.envoy()
	envoy.send(requestOf(clusterType, "", nil, nil))
	envoy.send(requestOf(endpointType, "", []string{"e"}, nil))
	r.again()
	if m := envoy.next(); m != nil {
		t.Errorf("%s", got(t, m))
	}
}

// A new agent uses the resources that the previous one stored.
func TestAgentAfterAgent(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "file")
	stop := r.start(file)
	r.begin()
	r.down()
	stop()
	r.start(file)
	if got := r.relay.away.Marshal(); !slices.Equal(got, away.Marshal()) {
		t.Errorf("stand-ins: %x", got)
	}
	envoy := r.envoy()
	envoy.send(requestOf(clusterType, "", nil, nil))
	envoy.want("Cluster a@1 #local-1")
}

// A control plane that refuses every stream counts as unreachable: the agent responds between its connection
// attempts.
func TestRefused(t *testing.T) {
	r := newRig(t)
	envoy, _ := r.begin()
	r.down()
	envoy.next()
	r.refuse = true
	r.again()
	responses := 0
	for responses < 2 || len(r.refused) < 2 {
		envoy = r.envoy()
		envoy.send(requestOf(clusterType, "", []string{"*", "tcp|10.9.9.9:80"}, nil))
		if m := envoy.next(); m != nil {
			responses++
			if is := got(t, m); is != "Cluster a@1 tcp|10.9.9.9:80@away #local-1" {
				t.Error(is)
			}
			for envoy.next() != nil {
			}
		}
		envoy.end()
	}
	if s := r.relay.State(); s.Connected || s.Err == nil {
		t.Errorf("%+v", s)
	}
}

// A stand-in consists of the template, a name and a load assignment.
func TestStandIns(t *testing.T) {
	for name, want := range map[string]struct {
		template byte
		address  string
	}{
		"http|10.9.9.9:80":        {1, "10.9.9.9"},
		"tcp|10.9.9.9:80":         {2, "10.9.9.9"},
		"tcp|[::ffff:10.9.9.9]:1": {2, "10.9.9.9"},
		"tcp|[fd00::1]:80":        {2, "fd00::1"},
		"http|10.96.0.1:80":       {3, ""},
		"outbound|80||a.b":        {3, ""},
		"udp|10.9.9.9:80":         {3, ""},
	} {
		r, ok := standIn(away, clusterType, name)
		p, err := parseResource(r.raw)
		if !ok || err != nil || p.name != name || p.version != "away" {
			t.Errorf("%s: %+v, %t, %v", name, r, ok, err)
		}
		body := string(r.raw)
		if i := strings.Index(body, string([]byte{8, want.template})); i < 0 || strings.Contains(body[i:], "10.9.9.9\x18") != (want.address == "10.9.9.9") || !strings.Contains(body[i:], want.address) {
			t.Errorf("%s: %q", name, body)
		}
	}
	if _, ok := standIn(away, listenerType, "a"); ok {
		t.Error("a listener")
	}
	if r, ok := standIn(wire.Away{}, clusterType, "tcp|10.9.9.9:80"); !ok || strings.Contains(string(r.raw), "10.9.9.9\x18") {
		t.Errorf("without templates: %q, %t", r.raw, ok)
	}
}

// An Envoy that disconnects while it waits frees its slot.
func TestHangup(t *testing.T) {
	r := newRig(t)
	r.down()
	for range 3 * maxConnections {
		c, err := net.Dial("unix", r.relay.o.Socket)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "PRI")
		c.Close()
	}
	r.again()
	envoy := r.envoy()
	envoy.send(requestOf(clusterType, "", nil, nil))
	r.stream()
}

// The TLS handshake starts before there is a certificate only if the control plane is distant. It completes
// with the certificate.
func TestHandshakeAhead(t *testing.T) {
	for name, far := range map[string]time.Duration{"far away": 0, "near": time.Hour} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.EnableHTTP2 = true
			begun, usable := make(chan struct{}, 10), make(chan struct{})
			server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				select {
				case <-usable:
				default:
					begun <- struct{}{}
				}
				return nil, nil
			}}
			server.StartTLS()
			defer server.Close()
			relay, err := Listen(Options{
				Socket: filepath.Join(t.TempDir(), "ads"), Address: server.Listener.Addr().String(), Changed: func(State) {}, Log: slog.New(slog.DiscardHandler),
				TLS: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error {
					select {
					case <-usable:
						return nil
					default:
						return errors.New("verified before there is a certificate")
					}
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer relay.listener.Close()
			relay.far = far
			made := make(chan error, 1)
			go func() {
				c, err := relay.dial(t.Context())
				if err == nil {
					c.Close()
				}
				made <- err
			}()
			if far == 0 {
				<-begun
			}
			close(usable)
			relay.Usable()
			if err := <-made; err != nil {
				t.Error(err)
			}
			if len(begun) > 0 {
				t.Error("the handshake begins before there is a certificate")
			}
		})
	}
}

// Only the proxy's user can connect.
func TestMode(t *testing.T) {
	r := newRig(t)
	if info, err := os.Stat(r.relay.o.Socket); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
