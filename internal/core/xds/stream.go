package xds

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A discoveryRequest has the methods that the requests of both protocols share.
type discoveryRequest interface {
	proto.Message
	GetNode() *core.Node
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *status.Status
}

// A transport is a gRPC stream.
type transport[Resp any] interface {
	Context() context.Context
	RecvMsg(any) error
	Send(Resp) error
}

// A protocol is one of the two variants of xDS.
type protocol[Req, Resp any] interface {
	name() string
	unsolicited() bool // resources may be sent without a subscription
	request() Req      // returns an empty request
	names(Req) int     // number of names in a request
	read(*client, Req) (*response, error)
	write(*client, *response) []Resp
}

// A stream serves one client. Its goroutine sends, and another one receives. While a send blocks, all
// snapshots but the newest are skipped, and requests stay in the connection.
type stream[Req discoveryRequest, Resp proto.Message] struct {
	server    *Server
	transport transport[Resp]
	protocol  protocol[Req, Resp]
	requests  chan frame
	received  chan error // receives one value: the error that ended the requests
	peer      *peer
	client    *client
	served    int              // number of requests, up to firstRequests
	paused    <-chan time.Time // fires when the next request may be served; nil: at once
	due       <-chan time.Time // fires when a delayed response is due; nil: none is delayed
}

// firstRequests is the number of requests that a client sends until it has its first configuration: the first for
// clusters, the second for listeners, and a third that either accepts these or subscribes to resources to which
// they refer.
const firstRequests = 3

// serve runs a stream to its end.
func serve[Req discoveryRequest, Resp proto.Message](s *Server, t transport[Resp], p protocol[Req, Resp]) error {
	if !s.enter() {
		return errStopping
	}
	defer s.running.Done()
	from, err := s.join(t.Context())
	if err != nil {
		s.refused(from, nil, err)
		return err
	}
	st := &stream[Req, Resp]{server: s, transport: t, protocol: p, peer: from, requests: make(chan frame), received: make(chan error, 1)}
	go st.receive()
	err = st.run()
	from.leave(st.client)
	if st.client != nil {
		s.leave(st.client)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	s.refused(from, st.client, err)
	return err
}

// refused logs and counts a stream that ended because of an error of its client.
func (s *Server) refused(from *peer, c *client, err error) {
	switch code := grpcstatus.Code(err); code {
	case codes.InvalidArgument, codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated, codes.DeadlineExceeded:
		s.count(func(c *Counters) { c.Refused++ })
		id := ""
		if c != nil {
			id = c.proxy.ID
		}
		from.log(s.log, slog.LevelWarn, "stream refused", "proxy", id, "code", code.String(), "reason", grpcstatus.Convert(err).Message())
	}
}

// receive passes the requests to [stream.run] until the stream ends. The stream also ends when that method
// returns.
func (st *stream[Req, Resp]) receive() {
	for {
		var f frame
		if err := st.transport.RecvMsg(&f); err != nil {
			st.received <- err
			return
		}
		select {
		case st.requests <- f:
		case <-st.transport.Context().Done():
			return
		}
	}
}

// run serves requests and snapshots. Requests wait for the first snapshot, because an unknown mesh is
// not the same as an empty one.
func (st *stream[Req, Resp]) run() error {
	s := st.server
	snapshot, newer := s.options.Source.Current()
	first := time.NewTimer(firstRequest)
	defer first.Stop()
	for {
		var requests chan frame
		if snapshot != nil && st.paused == nil {
			requests = st.requests
		}
		select {
		case <-st.paused:
			st.paused = nil
		case <-first.C:
			if snapshot == nil {
				first.Reset(firstRequest)
			} else if st.client == nil {
				return grpcstatus.Errorf(codes.DeadlineExceeded, "no request within %s", firstRequest)
			}
		case <-st.due:
			if err := st.respond(false, func(c *client) (*response, error) { return c.due(), nil }); err != nil {
				return err
			}
		case f := <-requests:
			r := st.protocol.request()
			if err := proto.Unmarshal(f, r); err != nil {
				return grpcstatus.Errorf(codes.InvalidArgument, "the request cannot be decoded: %v", err)
			}
			if err := st.request(r, snapshot); err != nil {
				return err
			}
			if st.served < firstRequests {
				if st.served++; st.served == firstRequests {
					s.options.Settled(st.transport.Context())
				}
			}
		case <-newer:
			old := snapshot
			if snapshot, newer = s.options.Source.Current(); old == nil || snapshot == nil || snapshot == old {
				if snapshot == nil {
					snapshot = old
				}
				continue
			}
			if err := st.push(old, snapshot); err != nil {
				return err
			}
		case err := <-st.received:
			return err
		case <-st.transport.Context().Done():
			return grpcstatus.FromContextError(st.transport.Context().Err()).Err()
		case <-s.stop:
			return errStopping
		}
	}
}

// request serves one request. The first one identifies the client.
func (st *stream[Req, Resp]) request(r Req, snapshot Snapshot) error {
	first := st.client == nil
	if first {
		c, err := st.server.admit(st.transport.Context(), st.peer, r.GetNode(), st.protocol.name(), snapshot)
		if err != nil {
			return err
		}
		c.unsolicited = st.protocol.unsolicited()
		st.client = c
	}
	if err := checkType(r.GetTypeUrl()); err != nil {
		return err
	}
	st.server.count(func(c *Counters) { c.Requests++ })
	work, large := 1, st.protocol.names(r) > largeRequest
	var notes []string
	err := st.respond(large, func(c *client) (*response, error) {
		if sub := c.types[r.GetTypeUrl()]; sub != nil && r.GetResponseNonce() != "" {
			st.acknowledge(c, sub, r)
		}
		answer, err := st.protocol.read(c, r)
		if err == nil {
			work += answer.work()
			switch t := answer.types[ListenerType]; {
			case c.proxy.GRPC && t != nil:
				notes = c.notes(t.names())
			case first && !c.proxy.GRPC:
				notes = c.notes(nil)
			}
		}
		return answer, err
	})
	for _, note := range notes {
		st.peer.log(st.server.log, slog.LevelInfo, "note on a proxy", "proxy", st.client.proxy.ID, "note", note)
	}
	if wait := st.peer.slow(work); wait > 0 {
		st.server.count(func(c *Counters) { c.Slowed++ })
		st.paused = time.After(wait)
	}
	return err
}

// acknowledge records an ACK or NACK.
func (st *stream[Req, Resp]) acknowledge(c *client, sub *subscription, r Req) {
	reason := ""
	if e := r.GetErrorDetail(); e != nil {
		reason = e.GetMessage()
		if reason == "" {
			reason = codes.Code(e.GetCode()).String()
		}
		reason = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
	}
	if sub.acks.acknowledge(r.GetResponseNonce(), reason, time.Now()) {
		st.server.count(func(c *Counters) { c.Rejected++ })
		st.peer.log(st.server.log, slog.LevelWarn, "proxy rejected its configuration", "proxy", c.proxy.ID, "type", shortType(sub.typeURL), "version", sub.acks.rejected.Version, "reason", reason)
	}
}

// push sends the changes in a new snapshot.
func (st *stream[Req, Resp]) push(old, snapshot Snapshot) error {
	if st.client == nil {
		return nil
	}
	changes, known := st.server.diffs.between(old, snapshot)
	return st.respond(false, func(c *client) (*response, error) { return c.push(snapshot, changes, known), nil })
}

// respond sends the response that a step of the engine returns. For a large response, or a gRPC client, whose
// messages are complete lists, it first waits for one of the peer's slots, which it keeps until the client has
// read the response.
func (st *stream[Req, Resp]) respond(large bool, step func(*client) (*response, error)) error {
	c := st.client
	if large || c.proxy.GRPC {
		if err := st.enter(st.peer.large); err != nil {
			return err
		}
		defer func() { <-st.peer.large }()
	}
	messages, err := st.compute(large, step)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := st.send(m); err != nil {
			return err
		}
	}
	st.due = nil
	if at, held := c.nextDue(); held {
		st.due = time.After(time.Until(at))
	}
	return nil
}

// compute returns the messages of a step. A large step needs one of the slots that all streams share. It waits
// for the slot without the client's lock, because the status of proxies needs that lock.
func (st *stream[Req, Resp]) compute(large bool, step func(*client) (*response, error)) ([]Resp, error) {
	if large {
		if err := st.enter(st.server.large); err != nil {
			return nil, err
		}
		defer func() { <-st.server.large }()
	}
	c := st.client
	c.mu.Lock()
	before := c.overLimit
	r, err := step(c)
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	messages := st.protocol.write(c, r)
	c.dropOverLimit(r)
	st.peer.count(c, c.names())
	after := c.overLimit
	c.mu.Unlock()
	if before == 0 && after > 0 {
		st.peer.log(st.server.log, slog.LevelWarn, "proxy subscribes to too many names; the rest is answered once, without updates", "proxy", c.proxy.ID, "bound", c.maxNames)
	}
	return messages, nil
}

// enter takes a slot. It waits until one is free, and fails if the stream or the server ends first.
func (st *stream[Req, Resp]) enter(places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-st.transport.Context().Done():
		return grpcstatus.FromContextError(st.transport.Context().Err()).Err()
	case <-st.server.stop:
		return errStopping
	}
}

// send sends one message. If the client does not read it in time, its stream ends: when serve returns,
// gRPC ends the blocked Send.
func (st *stream[Req, Resp]) send(m Resp) error {
	size, began := proto.Size(m), time.Now()
	sent := make(chan error, 1)
	go func() { sent <- st.transport.Send(m) }()
	limit := time.NewTimer(st.server.options.SendTimeout)
	defer limit.Stop()
	select {
	case err := <-sent:
		if err == nil {
			took := time.Since(began)
			st.server.count(func(c *Counters) { c.sent(size, took) })
		}
		return err
	case <-limit.C:
		st.server.count(func(c *Counters) { c.Timeouts++ })
		return grpcstatus.Errorf(codes.DeadlineExceeded, "the proxy %q did not take a message of %d bytes within %s", st.client.proxy.ID, size, st.server.options.SendTimeout)
	}
}
