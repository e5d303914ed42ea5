package relay

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"outrider.dev/internal/wire"
)

// maxLocal is about how large a message to Envoy is: the control plane's bound too.
const maxLocal = 2 << 20

// local responds to Envoy in place of the control plane, until that is reached.
func local(ctx context.Context, r *Relay, envoy net.Conn, reached chan net.Conn) {
	closed := make(chan struct{})
	ended := sync.OnceFunc(func() { close(closed) }) // by Envoy
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
		reached <- c // for Envoy's next connection
	case <-closed:
	case <-ctx.Done():
	}
	close(l.conn)
	server.Close()
	serving.Wait()
}

// one is a listener with one connection.
type one struct {
	net.Listener // for its address
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

// A session is a stream of Envoy to which the agent responds.
type session struct {
	relay *Relay
	has   map[string]map[string]string // what Envoy has from before, by type: versions by name
	nonce int
	// bare: Envoy has nothing yet, and what is kept is not all that it needs. It gets nothing,
	// rather than a part that it would take for all.
	bare bool
}

// respond serves one stream.
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
		for _, m := range s.take(q) {
			if _, err := w.Write(wire.Frame(m.marshal())); err != nil {
				return
			}
		}
		if flush() != nil {
			return
		}
	}
}

// take returns the messages for a request: what Envoy does not have and subscribes to; an empty
// one to a wildcard without news.
func (s *session) take(q request) []response {
	has := s.note(q)
	if s.bare {
		return nil
	}
	m := messages{typeURL: q.typeURL}
	// Without names and nonce it is the wildcard, or the virtual hosts of a route configuration.
	if q.nonce == "" && len(q.unsubscribe)+len(q.subscribe) == 0 || slices.Contains(q.subscribe, "*") {
		m.addAll(s.relay.store, has)
	}
	for _, name := range q.subscribe {
		if name != "*" {
			_, ok := has[name]
			m.addName(s.relay, name, ok)
		}
	}
	for i := range m.all {
		s.nonce++
		m.all[i].nonce = "local-" + strconv.Itoa(s.nonce)
	}
	return m.all
}

// note returns what Envoy has of the request's type.
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

// messages collects resources in messages of a limited size.
type messages struct {
	typeURL string
	all     []response
	size    int // of the last
}

func (m *messages) add(r resource) {
	if m.size += len(r.raw); m.size > maxLocal || len(m.all) == 0 {
		m.size = len(r.raw)
		m.all = append(m.all, response{typeURL: m.typeURL})
	}
	last := &m.all[len(m.all)-1]
	last.resources = append(last.resources, r)
}

// addAll adds all that is kept and that Envoy does not have.
func (m *messages) addAll(s *store, has map[string]string) {
	for _, name := range s.names(m.typeURL) {
		if _, ok := has[name]; !ok {
			m.addKept(s, name)
		}
	}
	if len(m.all) == 0 {
		m.all = append(m.all, response{typeURL: m.typeURL})
	}
}

// addName adds what is kept, or a stand-in, but nothing that Envoy has: except endpoints, for
// which a cluster that was updated waits.
func (m *messages) addName(r *Relay, name string, has bool) {
	if has && m.typeURL != endpointType || m.addKept(r.store, name) || has {
		return
	}
	r.mu.Lock()
	away := r.away
	r.mu.Unlock()
	if stand, ok := standIn(away, m.typeURL, name); ok {
		m.add(stand)
	}
}

// addKept reports whether the name is kept.
func (m *messages) addKept(s *store, name string) bool {
	r, ok := s.get(m.typeURL, name)
	if ok {
		m.add(r)
	}
	return ok
}
