package relay

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"outrider.dev/internal/base/wire"
)

const (
	// copyBuffer is the size of one read: a TLS record.
	copyBuffer = 16 << 10
	// Maximum sizes of messages. After a reconnect, Envoy's first message contains its node and the names of
	// all its resources. Messages of the control plane have about 2 MiB at most, unless they contain a single
	// larger resource: the routes of 10,000 services take 7.6 MB.
	maxRequest  = 4 << 20
	maxResponse = 20 << 20
	maxPending  = 16 << 20 // responses in memory that Envoy has not accepted yet
)

// through copies bytes between the connection of Envoy and the connection to the control plane,
// until one of the two ends. It changes only Envoy's first bytes (see [opening]), and listeners for an Envoy that
// leaves (see [Relay.HoldListeners]).
func (r *Relay) through(ctx context.Context, envoy, server net.Conn) {
	t := newTee(r)
	defer r.enter(t)()
	end := sync.OnceFunc(func() {
		envoy.Close()
		server.Close()
	})
	defer context.AfterFunc(ctx, end)()
	var cause error // why the control plane's side ended; nil: Envoy ended its side
	var once sync.Once
	ended := func(err error) {
		once.Do(func() {
			cause = err
			t.mu.Lock()
			defer t.mu.Unlock()
			t.leave()
		})
		end()
	}
	var directions sync.WaitGroup
	directions.Go(func() { pump(envoy, server, t.requests.read, ended, false) })
	directions.Go(func() { pump(server, envoy, t.responses.read, ended, true) })
	directions.Wait()
	if cause != nil && ctx.Err() == nil {
		r.lost(cause)
	}
}

// pump copies one direction. It passes bytes to the reader before it writes them: an ACK must not
// be read before the response that it acknowledges.
func pump(from io.Reader, to io.Writer, read func([]byte) ([]byte, error), ended func(error), fromServer bool) {
	buffer := make([]byte, copyBuffer)
	for {
		n, err := from.Read(buffer)
		server := fromServer
		out, stop := read(buffer[:n])
		if len(out) > 0 {
			if _, failed := to.Write(out); failed != nil {
				err, server = failed, !fromServer
			}
		}
		switch {
		case stop != nil:
			ended(stop)
		case err != nil && server:
			ended(err)
		case err != nil:
			ended(nil)
		default:
			continue
		}
		return
	}
}

// A tee reads both directions of a connection, and stores the resources that Envoy accepts.
type tee struct {
	relay               *Relay
	requests, responses *direction

	mu      sync.Mutex
	opening opening             // rewrites Envoy's first bytes
	stream  uint32              // of Envoy's newest request
	types   map[string]*typeUse // types used on the stream
	pending map[string]response // responses that were sent to Envoy and not accepted yet, by nonce
	waiting int                 // sum of the sizes of pending
	began   bool                // the control plane has sent something
	unread  bool                // a message was missed: nothing more is stored
	closed  error               // the reason to close the connection; nil: none
}

// A typeUse is the state of one resource type on a stream.
type typeUse struct {
	initial  map[string]string // versions that Envoy had before
	accepted bool              // Envoy has accepted a response
}

// A direction reads until its first error. After that, nothing is stored any more, but bytes are
// still copied.
type direction struct {
	frames
	tee   *tee
	begun bool     // some bytes were read
	held  [][]byte // bytes that are not forwarded yet: the beginning of a message that may be changed
}

func newTee(r *Relay) *tee {
	t := &tee{relay: r, pending: map[string]response{}, types: map[string]*typeUse{}, opening: opening{preface: prefaceSize}}
	t.requests = &direction{tee: t, frames: frames{skip: prefaceSize, limit: maxRequest, message: t.request, ended: func(uint32) {}}}
	t.responses = &direction{tee: t, frames: frames{limit: maxResponse, message: t.response, ended: t.end}}
	return t
}

// read returns the bytes to forward in place of p, and an error if the connection must be closed.
func (d *direction) read(p []byte) ([]byte, error) {
	t := d.tee
	t.mu.Lock()
	defer t.mu.Unlock()
	if d == t.requests {
		p = t.opening.take(p)
	}
	failed, between := d.err != nil, d.begun && len(d.head) == 0
	d.begun = d.begun || len(p) > 0
	p = d.parse(p, between)
	if d.err != nil && !failed {
		if d == t.responses {
			t.begin()
		}
		t.unread = true
		clear(t.pending)
		t.relay.store.giveUp(d.err)
	}
	if d == t.responses && t.opening.spared > 0 {
		switch {
		case between:
			p = append(t.opening.credit(), p...)
		case d.err != nil: // the beginning of the next frame is not known
			t.closed = cmp.Or(t.closed, d.err)
		case d.begun && len(d.head) == 0:
			p = append(slices.Clone(p), t.opening.credit()...)
		}
	}
	return p, t.closed
}

// errRefused means that the control plane ended a stream before it had sent anything. Envoy logs
// the stream's status.
var errRefused = errors.New("it refused the stream")

// end closes the connection after the control plane has ended a stream: otherwise Envoy would open
// the next stream on the same connection.
func (t *tee) end(stream uint32) {
	if stream != t.stream {
		return
	}
	t.leave() // before Envoy reconnects
	if t.closed = errRefused; t.began {
		t.closed = errors.New("it ended the stream")
	}
}

// request reads a message of Envoy.
func (t *tee) request(stream uint32, m []byte) {
	q, err := parseRequest(m)
	if err != nil || q.typeURL == "" { // a message without a type belongs to another service
		t.requests.err = err
		return
	}
	if stream != t.stream {
		t.leave()
		t.stream = stream
		clear(t.types)
	}
	use := t.types[q.typeURL]
	if use == nil {
		use = &typeUse{initial: q.initial}
		t.types[q.typeURL] = use
		t.relay.settle(q)
	}
	if p, ok := t.pending[q.nonce]; ok {
		delete(t.pending, q.nonce)
		t.waiting -= p.size
		if !q.rejected && p.typeURL == q.typeURL {
			t.relay.store.accept(p, !use.accepted, use.initial)
			use.accepted, use.initial = true, nil
		}
	}
	t.relay.store.forget(q.typeURL, q.unsubscribe)
}

// response reads a message of the control plane.
func (t *tee) response(stream uint32, m []byte) {
	if stream != t.stream {
		return
	}
	t.begin()
	p, err := parseResponse(m)
	if err == nil && t.hold(m, p) {
		p, err = parseResponse(m)
	}
	if err != nil {
		t.responses.err = err
		return
	}
	if p.away != nil {
		t.relay.setAway(p.away)
	}
	if t.unread {
		return
	}
	t.waiting += p.size - t.pending[p.nonce].size
	t.pending[p.nonce] = p
	if t.waiting > maxPending {
		t.responses.err = errors.New("too much that Envoy has not accepted")
	}
}

func (t *tee) begin() {
	if !t.began {
		t.began = true
		t.relay.connected()
	}
}

// leave ends the stream, and remembers the responses without an ACK, since Envoy may have accepted
// them.
func (t *tee) leave() {
	if len(t.pending) > 0 {
		t.relay.mu.Lock()
		t.relay.left = t.pending
		t.relay.mu.Unlock()
		t.pending, t.waiting = map[string]response{}, 0
	}
}

// settle stores those responses of the last stream that Envoy accepted although the ACK was lost.
// Envoy's first request of a type on the next stream shows which responses it accepted.
func (r *Relay) settle(q request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for nonce, p := range r.left { // any order: only one version of a name is stored
		if p.typeURL == q.typeURL {
			delete(r.left, nonce)
			r.store.accept(response{typeURL: p.typeURL, resources: slices.DeleteFunc(p.resources, func(x resource) bool {
				return x.version == "" || q.initial[x.name] != x.version
			})}, false, nil)
		}
	}
}

// setAway stores the control plane's settings for the time in which it is unreachable.
func (r *Relay) setAway(raw []byte) {
	raw = slices.Clone(raw) // do not keep the large message in memory
	away, err := wire.ParseAway(raw)
	if err != nil {
		r.o.Log.Warn("the control plane's stand-ins cannot be read", "error", err)
		return
	}
	r.mu.Lock()
	r.away = away
	r.mu.Unlock()
	r.store.setAway(raw)
}
