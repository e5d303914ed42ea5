package xds

import (
	"context"
	"errors"
	"io"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A request is what requests of both protocols have in common.
type request interface {
	GetNode() *core.Node
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *status.Status
}

// A wire is a stream as gRPC gives it.
type wire[Req, Resp any] interface {
	Context() context.Context
	Recv() (Req, error)
	Send(Resp) error
}

// A dialect is one of the two protocols.
type dialect[Req, Resp any] interface {
	name() string
	unasked() bool // may tell what was not asked for
	read(*client, Req) (*batch, error)
	write(*client, *batch) []Resp
}

// A stream is the life of one client. Its goroutine is the only one that sends; another
// one receives. While a send blocks the newest view is awaited and older ones are
// skipped, and requests stay in the connection.
type stream[Req request, Resp proto.Message] struct {
	server   *Server
	wire     wire[Req, Resp]
	dialect  dialect[Req, Resp]
	requests chan Req
	received chan error // one value: why there are no more requests
	client   *client
}

// serve runs a stream to its end.
func serve[Req request, Resp proto.Message](s *Server, w wire[Req, Resp], d dialect[Req, Resp]) error {
	if !s.enter() {
		return errStopping
	}
	defer s.running.Done()
	st := &stream[Req, Resp]{server: s, wire: w, dialect: d, requests: make(chan Req), received: make(chan error, 1)}
	go st.receive()
	err := st.run()
	if st.client != nil {
		s.leave(st.client)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// receive hands requests over until the stream ends, which it does when run returns.
func (st *stream[Req, Resp]) receive() {
	for {
		r, err := st.wire.Recv()
		if err != nil {
			st.received <- err
			return
		}
		select {
		case st.requests <- r:
		case <-st.wire.Context().Done():
			return
		}
	}
}

// run serves requests and views. Nothing is answered before there is a view: an empty
// mesh is not the same as one that is not known.
func (st *stream[Req, Resp]) run() error {
	s := st.server
	view, newer := s.options.Source.Current()
	var requests chan Req
	for {
		if view != nil {
			requests = st.requests
		}
		select {
		case r := <-requests:
			if err := st.request(r, view); err != nil {
				return err
			}
		case <-newer:
			old := view
			if view, newer = s.options.Source.Current(); old == nil || view == nil || view == old {
				if view == nil {
					view = old
				}
				continue
			}
			if err := st.push(old, view); err != nil {
				return err
			}
		case err := <-st.received:
			return err
		case <-st.wire.Context().Done():
			return grpcstatus.FromContextError(st.wire.Context().Err()).Err()
		case <-s.stop:
			return errStopping
		}
	}
}

// request answers one request. The first one says who asks.
func (st *stream[Req, Resp]) request(r Req, view View) error {
	if st.client == nil {
		c, err := st.server.admit(st.wire.Context(), r.GetNode(), st.dialect.name(), view)
		if err != nil {
			return err
		}
		c.unasked = st.dialect.unasked()
		st.client = c
	}
	if err := checkType(r.GetTypeUrl()); err != nil {
		return err
	}
	st.server.counters.requests.Add(1)
	return st.tell(func(c *client) (*batch, error) {
		if sub := c.types[r.GetTypeUrl()]; sub != nil && r.GetResponseNonce() != "" {
			st.heard(c, sub, r)
		}
		return st.dialect.read(c, r)
	})
}

// heard notes whether a message was accepted.
func (st *stream[Req, Resp]) heard(c *client, sub *subscription, r Req) {
	reason := ""
	if e := r.GetErrorDetail(); e != nil {
		reason = e.GetMessage()
		if reason == "" {
			reason = codes.Code(e.GetCode()).String()
		}
	}
	if sub.exchange.answered(r.GetResponseNonce(), reason, time.Now()) {
		st.server.counters.rejected.Add(1)
		st.server.log.Warn("proxy rejected its configuration", "proxy", c.proxy.ID, "type", short(sub.typeURL), "version", sub.exchange.rejected.Version, "reason", reason)
	}
}

// push tells what a new view changes.
func (st *stream[Req, Resp]) push(old, view View) error {
	if st.client == nil {
		return nil
	}
	changes, known := st.server.changes.between(old, view)
	if known && st.client.passes(view, changes) {
		return nil
	}
	return st.tell(func(c *client) (*batch, error) { return c.refresh(view, changes, known), nil })
}

// tell sends what a step of the engine says.
func (st *stream[Req, Resp]) tell(step func(*client) (*batch, error)) error {
	c := st.client
	c.mu.Lock()
	before := c.excess
	b, err := step(c)
	if err != nil {
		c.mu.Unlock()
		return err
	}
	messages := st.dialect.write(c, b)
	c.written(b)
	excess := c.excess
	c.mu.Unlock()
	if before == 0 && excess > 0 {
		st.server.log.Warn("proxy asks for too many names; the rest is answered but not followed", "proxy", c.proxy.ID, "bound", c.maxNames)
	}
	for _, m := range messages {
		if err := st.send(m); err != nil {
			return err
		}
	}
	return nil
}

// send sends one message. A client that does not take it in time loses its stream: when
// serve returns gRPC ends the blocked Send.
func (st *stream[Req, Resp]) send(m Resp) error {
	size, began := proto.Size(m), time.Now()
	sent := make(chan error, 1)
	go func() { sent <- st.wire.Send(m) }()
	limit := time.NewTimer(st.server.options.SendTimeout)
	defer limit.Stop()
	select {
	case err := <-sent:
		if err == nil {
			st.server.counters.sent(size, time.Since(began))
		}
		return err
	case <-limit.C:
		st.server.counters.timeouts.Add(1)
		return grpcstatus.Errorf(codes.DeadlineExceeded, "the proxy %q did not take a message of %d bytes within %s", st.client.proxy.ID, size, st.server.options.SendTimeout)
	}
}

// peerOf is who is at the other end of the connection; nil if gRPC does not say.
func peerOf(ctx context.Context) *peer.Peer {
	p, _ := peer.FromContext(ctx)
	return p
}
