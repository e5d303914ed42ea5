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
	// copyBuffer is the most that is read at a time: a record of TLS.
	copyBuffer = 16 << 10
	// Bounds of a message that is read. Envoy's first one has its node, and the names of all its
	// resources after a reconnect; the control plane's have about 2 MiB, or one resource: the
	// routes of 10,000 services take 7.6 MB.
	maxRequest  = 4 << 20
	maxResponse = 20 << 20
	maxPending  = 16 << 20 // what Envoy has not accepted yet, in memory
)

// through copies Envoy's connection to the control plane's and back, until one of them ends. All
// but the opening goes on unchanged.
func (r *Relay) through(ctx context.Context, envoy, server net.Conn) {
	t := newTee(r)
	end := sync.OnceFunc(func() {
		envoy.Close()
		server.Close()
	})
	defer context.AfterFunc(ctx, end)()
	var cause error // why the control plane's side ended; nil: Envoy's did
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

// pump copies one direction. The reader takes the bytes before they go on: an ACK must not be
// read before what it is for.
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

// A tee reads both directions of a connection, and keeps what Envoy accepts.
type tee struct {
	relay               *Relay
	requests, responses *direction

	mu      sync.Mutex
	opening opening             // of Envoy
	stream  uint32              // of Envoy: of its newest request
	types   map[string]*typeUse // of the stream
	pending map[string]response // by nonce: sent to Envoy, and not accepted yet
	waiting int                 // sizes of pending
	began   bool                // the control plane has sent something
	unread  bool                // a message was missed: nothing more is kept
	closed  error               // the control plane has ended the stream
}

// A typeUse is what is known of a type on a stream.
type typeUse struct {
	initial  map[string]string // versions that Envoy had before
	accepted bool              // Envoy has accepted something
}

// A direction reads until it fails once, which ends the keeping and not the copying.
type direction struct {
	frames
	tee   *tee
	begun bool // something was read
}

func newTee(r *Relay) *tee {
	t := &tee{relay: r, pending: map[string]response{}, types: map[string]*typeUse{}, opening: opening{preface: prefaceSize}}
	t.requests = &direction{tee: t, frames: frames{skip: prefaceSize, limit: maxRequest, message: t.request, ended: func(uint32) {}}}
	t.responses = &direction{tee: t, frames: frames{limit: maxResponse, message: t.response, ended: t.end}}
	return t
}

// read returns what goes on in place of p, and an error when the connection is to be closed.
func (d *direction) read(p []byte) ([]byte, error) {
	t := d.tee
	t.mu.Lock()
	defer t.mu.Unlock()
	if d == t.requests {
		p = t.opening.take(p)
	}
	failed, between := d.err != nil, d.begun && len(d.head) == 0
	d.frames.read(p)
	d.begun = d.begun || len(p) > 0
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
		case d.err != nil: // where the next frame begins is not known
			t.closed = cmp.Or(t.closed, d.err)
		case d.begun && len(d.head) == 0:
			p = append(slices.Clone(p), t.opening.credit()...)
		}
	}
	return p, t.closed
}

// errRefused is a stream that the control plane ends before it has sent anything. Envoy logs its
// status.
var errRefused = errors.New("it refused the stream")

// end is called when the control plane ends a stream: Envoy would open the next one on the same
// connection.
func (t *tee) end(stream uint32) {
	if stream != t.stream {
		return
	}
	t.leave() // before Envoy begins anew
	if t.closed = errRefused; t.began {
		t.closed = errors.New("it ended the stream")
	}
}

// request takes a message of Envoy.
func (t *tee) request(stream uint32, m []byte) {
	q, err := parseRequest(m)
	if err != nil || q.typeURL == "" { // the second is of another service
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

// response takes a message of the control plane.
func (t *tee) response(stream uint32, m []byte) {
	if stream != t.stream {
		return
	}
	t.begin()
	p, err := parseResponse(m)
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

// leave ends the stream. What Envoy has not accepted yet it may have all the same.
func (t *tee) leave() {
	if len(t.pending) > 0 {
		t.relay.mu.Lock()
		t.relay.left = t.pending
		t.relay.mu.Unlock()
		t.pending, t.waiting = map[string]response{}, 0
	}
}

// settle keeps what Envoy has of the last stream though its ACK was lost: by its first request
// of a type on the next stream.
func (r *Relay) settle(q request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for nonce, p := range r.left { // any order: of a name one version is kept
		if p.typeURL == q.typeURL {
			delete(r.left, nonce)
			r.store.accept(response{typeURL: p.typeURL, resources: slices.DeleteFunc(p.resources, func(x resource) bool {
				return x.version == "" || q.initial[x.name] != x.version
			})}, false, nil)
		}
	}
}

// setAway takes what the control plane sends for the time in which it is away.
func (r *Relay) setAway(raw []byte) {
	raw = slices.Clone(raw) // of a large message
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
