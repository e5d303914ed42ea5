package relay

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"outrider.dev/internal/base/wire"
)

// maxLocal is the approximate maximum size of a message to Envoy, the same as the control plane's.
const maxLocal = 2 << 20

// local responds to Envoy in place of the control plane, until the control plane is reached.
func local(ctx context.Context, r *Relay, envoy net.Conn, reached chan net.Conn) {
	closed := make(chan struct{})
	ended := sync.OnceFunc(func() { close(closed) }) // Envoy closed the connection
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.respond(w, q) }),
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	l := &one{conn: make(chan net.Conn, 1), Listener: r.listener}
	l.conn <- watchedConn{envoy, ended}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(l) })
	select {
	case c := <-reached:
		reached <- c // kept for Envoy's next connection
	case <-closed:
	case <-ctx.Done():
	}
	close(l.conn)
	server.Close()
	serving.Wait()
}

// one is a listener that accepts a single connection.
type one struct {
	net.Listener // provides the address
	conn         chan net.Conn
}

func (l *one) Accept() (net.Conn, error) {
	if c, ok := <-l.conn; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *one) Close() error { return nil }

type watchedConn struct {
	net.Conn
	closed func()
}

func (c watchedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// A session is a stream of Envoy to which the agent responds in place of the control plane.
type session struct {
	relay *Relay
	has   map[string]map[string]string // resources that Envoy had before the stream, by type: versions by name
	nonce int
	// bare means that Envoy has no resources yet and that the store does not contain all that it needs. Envoy
	// then gets no response, because it would take an incomplete set of resources for the complete one.
	bare bool
}

// respond serves one stream of Envoy.
func (r *Relay) respond(w http.ResponseWriter, in *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return
	}
	s := &session{relay: r, has: map[string]map[string]string{}}
	for {
		raw, err := wire.ReadMessage(in.Body, maxRequest)
		if err != nil {
			return
		}
		q, err := parseRequest(raw)
		if err != nil || q.typeURL == "" {
			return
		}
		if s.take(q, func(p response) error {
			_, err := w.Write(wire.Frame(p.marshal()))
			return err
		}) != nil || flush() != nil {
			return
		}
	}
}

// take responds to a request with the resources that Envoy subscribes to and does not have. If a wildcard
// subscription needs no resource, it gets an empty message.
func (s *session) take(q request, send func(response) error) error {
	has := s.note(q)
	if s.bare {
		return nil
	}
	m := messages{session: s, send: send, next: response{typeURL: q.typeURL}}
	// A request without names and nonce subscribes to the wildcard, or to the virtual hosts of a
	// route configuration.
	all := q.nonce == "" && len(q.unsubscribe)+len(q.subscribe) == 0 || slices.Contains(q.subscribe, "*")
	missing := m.addKept(q, has, all)
	s.relay.mu.Lock()
	away := s.relay.away
	s.relay.mu.Unlock()
	for _, name := range q.subscribe {
		if _, had := has[name]; missing[name] && !had {
			if r, ok := standIn(away, q.typeURL, name); ok {
				m.add(r)
			}
		}
	}
	if len(m.next.resources) > 0 || all && !m.sent {
		m.flush()
	}
	return m.err
}

// note updates the session from a request, and returns the resources of the request's type that Envoy has.
func (s *session) note(q request) map[string]string {
	has, known := s.has[q.typeURL]
	if !known {
		has = q.initial
		s.relay.settle(q)
		s.has[q.typeURL] = has
		if q.typeURL == clusterType && len(has) == 0 {
			s.bare = !s.relay.store.complete()
		}
	}
	for _, name := range q.unsubscribe {
		delete(has, name)
	}
	s.relay.store.forget(q.typeURL, q.unsubscribe)
	return has
}

// messages sends resources in messages of limited size.
type messages struct {
	session *session
	send    func(response) error
	next    response
	sent    bool
	err     error // of send
}

func (m *messages) flush() {
	if m.err != nil {
		return
	}
	m.session.nonce++
	m.next.nonce = "local-" + strconv.Itoa(m.session.nonce)
	m.err, m.sent = m.send(m.next), true
	m.next.resources, m.next.size = nil, 0
}

// addKept adds the stored resources: all of the type, or those that the request names. It returns
// the names that are not stored.
func (m *messages) addKept(q request, has map[string]string, all bool) (missing map[string]bool) {
	missing = map[string]bool{}
	for _, name := range q.subscribe {
		missing[name] = name != "*"
	}
	store := m.session.relay.store
	names := q.subscribe
	if all {
		names = store.names(q.typeURL)
	}
	for _, name := range names {
		// Envoy keeps the resources that it has. But it waits for the endpoints of an updated
		// cluster, so endpoints are sent again.
		_, had := has[name]
		if wanted := missing[name]; wanted && (!had || q.typeURL == endpointType) || all && !had {
			if r, ok := store.get(q.typeURL, name); ok {
				m.add(r)
				delete(missing, name)
			}
		}
	}
	return missing
}

func (m *messages) add(r resource) {
	if m.next.size+len(r.raw) > maxLocal && len(m.next.resources) > 0 {
		m.flush()
	}
	m.next.size += len(r.raw) + 8 // with tag and length
	m.next.resources = append(m.next.resources, r)
}
